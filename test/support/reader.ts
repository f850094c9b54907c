import { credentials } from "@grpc/grpc-js";
import {
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
  readonly local: Read;
  readonly global: Read;
  close(): void;
};

/** Connects to the service's gRPC address. */
export function openReader(address: string): Reader {
  const client = new TimelineServiceClient(address, credentials.createInsecure());
  const { getHomeTimeline, getLocalTimeline, getGlobalTimeline } = callsOf(client, TimelineServiceService);
  return {
    home: (user_id, query, deadlineMs) => getHomeTimeline({ ...query, user_id }, deadlineMs),
    local: getLocalTimeline,
    global: getGlobalTimeline,
    close: () => client.close(),
  };
}

/** Called between two pages. */
export type Between = (page: number) => Promise<void>;

/** Pages a test turns at most: more means that paging does not end. */
const PAGES_MAX = 2_000;

/** Turns pages towards the older end; yields the pages, each newest first. */
export async function pagesDown(
  read: Read,
  query: Query,
  between: Between = async () => {},
): Promise<GetTimelineResponse[]> {
  const pages = [await read(query)];
  for (let last = pages[0]; last?.has_more; last = pages.at(-1)) {
    if (pages.length > PAGES_MAX) throw new Error("paging down does not end");
    await between(pages.length);
    pages.push(await read({ limit: query.limit ?? 0, max_id: last.next_max_id }));
  }
  return pages;
}

/** Turns pages from `min_id` towards the newer end; yields the pages, each newest first, the oldest page first. */
export async function pagesUp(
  read: Read,
  query: Query,
  between: Between = async () => {},
): Promise<GetTimelineResponse[]> {
  const pages = [await read(query)];
  for (let last = pages[0]; last?.has_more; last = pages.at(-1)) {
    if (pages.length > PAGES_MAX) throw new Error("paging up does not end");
    await between(pages.length);
    pages.push(await read({ limit: query.limit ?? 0, min_id: last.prev_min_id }));
  }
  return pages;
}

/** All ids of pages that were turned down, newest first. */
export function downIds(pages: readonly GetTimelineResponse[]): string[] {
  return pages.flatMap((page) => page.drop_ids);
}

/** All ids of pages that were turned up, newest first. */
export function upIds(pages: readonly GetTimelineResponse[]): string[] {
  return [...pages].reverse().flatMap((page) => page.drop_ids);
}
