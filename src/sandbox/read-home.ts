import type { GetTimelineRequest, GetTimelineResponse, TimelineServiceClient } from "../gen/avion/timeline.js";

/** Reads a page of a home timeline. */
export type ReadPage = (user: string, page?: Partial<GetTimelineRequest>) => Promise<GetTimelineResponse>;

/** Reads pages over gRPC, as a gateway team would. */
export function createReadHome(client: TimelineServiceClient): ReadPage {
  return (user, page = {}) =>
    new Promise((resolve, reject) => {
      const request = { limit: 0, since_id: "", max_id: "", min_id: "", ...page, user_id: user };
      client.getHomeTimeline(request, (error, response) => (error ? reject(error) : resolve(response)));
    });
}
