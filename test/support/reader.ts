import { credentials } from "@grpc/grpc-js";
import {
  type GetListTimelineRequest,
  type GetTimelineRequest,
  type GetTimelineResponse,
  TimelineServiceClient,
  TimelineServiceService,
} from "../../src/gen/avion/timeline.js";
import { callsOf } from "./grpc.js";

/** Fields of a read; those left out are empty. */
export type Query = Partial<GetTimelineRequest>;
/** A read of one timeline. */
export type Read = (query?: Query, deadlineMs?: number) => Promise<GetTimelineResponse>;

/** The three timelines over gRPC. */
export type Reader = {
  home(user: string, query?: Query, deadlineMs?: number): Promise<GetTimelineResponse>;
  list(user: string, list: string, query?: Partial<GetListTimelineRequest>): Promise<GetTimelineResponse>;
  readonly local: Read;
  readonly global: Read;
  close(): void;
};

/** Connects to the service's gRPC address. */
export function openReader(address: string): Reader {
  const client = new TimelineServiceClient(address, credentials.createInsecure());
  const { getHomeTimeline, getListTimeline, getLocalTimeline, getGlobalTimeline } = callsOf(
    client,
    TimelineServiceService,
  );
  return {
    home: (user_id, query, deadlineMs) => getHomeTimeline({ ...query, user_id }, deadlineMs),
    list: (user_id, list_id, query) => getListTimeline({ ...query, user_id, list_id }),
    local: getLocalTimeline,
    global: getGlobalTimeline,
    close: () => client.close(),
  };
}

/** Called between two pages. */
export type Between = (page: number) => Promise<void>;

/** Pages a test turns at most: more means that paging does not end. */
const PAGES_MAX = 2_000;

/** Turns pages until there are no more; `onwards` returns what a page hands over for the next one. */
const turnPages =
  (onwards: (page: GetTimelineResponse) => Query) =>
  async (read: Read, query: Query, between: Between = async () => {}): Promise<GetTimelineResponse[]> => {
    const pages = [await read(query)];
    for (let last = pages[0]; last?.has_more; last = pages.at(-1)) {
      if (pages.length > PAGES_MAX) throw new Error("paging does not end");
      await between(pages.length);
      pages.push(await read({ limit: query.limit ?? 0, ...onwards(last) }));
    }
    return pages;
  };

/** Turns pages towards the older end; yields the pages, each newest first. */
export const pagesDown = turnPages(({ next_max_id }) => ({ max_id: next_max_id }));

/** Turns pages from `min_id` towards the newer end; yields the pages, each newest first, the oldest page first. */
export const pagesUp = turnPages(({ prev_min_id }) => ({ min_id: prev_min_id }));

/** All ids of pages that were turned down, newest first. */
export function downIds(pages: readonly GetTimelineResponse[]): string[] {
  return pages.flatMap((page) => page.drop_ids);
}

/** All ids of pages that were turned up, newest first. */
export function upIds(pages: readonly GetTimelineResponse[]): string[] {
  return [...pages].reverse().flatMap((page) => page.drop_ids);
}
