import type { ClientHttp2Session } from "node:http2";
import { toToken } from "../../../src/contracts/page-request.js";
import type { TimelineEntry } from "../../../src/contracts/timelines.js";
import { GetTimelineRequest, GetTimelineResponse } from "../../../src/gen/avion/timeline.js";
import { onceIn, REPOST_WINDOW } from "../../support/reposts-once.js";
import { check } from "./result.js";

export const READ_KINDS = ["Home", "Local", "Global"] as const;
export type ReadKind = (typeof READ_KINDS)[number];

/**
 * Pages of homes with reposts: each drop once, all reposts, and once without items, which only the bare server answers.
 */
export const REPOST_KINDS = ["Once", "All", "Itemless"] as const;
export type RepostKind = (typeof REPOST_KINDS)[number];

export const LIMIT = 50;
export const READERS = 200;

export const userOf = (reader: number, kind: ReadKind | RepostKind = "Home"): string =>
  isOfReposts(kind) ? `${kind}-${reader}` : `reader-${reader}`;

export const isOfReposts = (kind: ReadKind | RepostKind): kind is RepostKind =>
  (REPOST_KINDS as readonly string[]).includes(kind);

const ENTRIES = 1_000;
const NEWEST_MS = 1_750_000_000_000;

interface Entry {
  readonly score: number;
  readonly drop: string;
  readonly repostOf?: string;
  readonly repostedBy?: readonly string[];
}

const uuidOf = (group: number, one: number): string =>
  `0197a7c8-${String(group).padStart(4, "0")}-7000-8000-${String(one).padStart(12, "0")}`;

/** Newest first. -2: local, -1: global. */
export const timelineOf = (reader: number): Entry[] =>
  Array.from({ length: ENTRIES }, (_, age) => ({ score: NEWEST_MS - 1_000 * age, drop: uuidOf(reader + 2, age) }));

/** The same timeline with reposts: a third of the entries, three of one drop within nine places. */
export const repostsOf = (reader: number): TimelineEntry[] =>
  timelineOf(reader).map((entry, age) => {
    const [author, original, repostOf] = [uuidOf(9_000, age % 9), uuidOf(9_001, 0), uuidOf(9_002, Math.floor(age / 9))];
    const repost = { author, original, repostOf };
    return age % 3 === 2 ? { ...entry, by: repost } : entry;
  });

/** All servers answer this to a first page. */
export function responseOf(kind: ReadKind | RepostKind, reader: number): Buffer {
  if (isOfReposts(kind)) return repostPage(kind, reader);
  const of = { Home: reader, Local: -2, Global: -1 }[kind];
  return encodedPage(timelineOf(of).slice(0, LIMIT));
}

function repostPage(kind: RepostKind, reader: number): Buffer {
  // Of these the page shows the first ones.
  const entries = repostsOf(reader).slice(0, 3 * LIMIT);
  const byId = new Map(entries.map((entry) => [entry.drop, entry]));
  const shown = onceIn(entries, kind === "All" ? 0 : REPOST_WINDOW).slice(0, LIMIT);
  const page = shown.map(({ drop, repostedBy }) => {
    const { score, by } = byId.get(drop) as TimelineEntry;
    return { score, drop, repostOf: by?.repostOf ?? "", repostedBy };
  });
  return encodedPage(page, kind !== "Itemless");
}

/** A page that others follow. */
export function encodedPage(page: readonly Entry[], hasItems = true): Buffer {
  const [newest, oldest] = [page[0], page.at(-1)].map((entry) => toToken(entry as Entry));
  const response = { drop_ids: page.map(({ drop }) => drop), has_more: true, degraded: false };
  const items = page.map(({ drop, score, repostOf = "", repostedBy = [] }) => ({
    ...{ drop_id: drop, created_at: score },
    ...{ repost_of: repostOf, reposted_by: [...repostedBy] },
  }));
  const cursors = { next_max_id: oldest as string, prev_min_id: newest as string };
  const whole = { ...response, ...cursors, items: hasItems ? items : [] };
  return Buffer.from(GetTimelineResponse.encode(whole).finish());
}

/** Has the answer of local as bytes, for the bare server that asks Redis. */
export const READY_LOCAL_KEY = "ready:local";

const FRAME_HEADER = 5;

/** Unary calls that cost their client less than those of a gRPC library; an answer is the bytes of its message. */
export function openFrames(session: ClientHttp2Session, path: string): (request: Uint8Array) => Promise<Buffer> {
  const headers = { ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers" };
  return (request) =>
    new Promise((resolve, reject) => {
      const frame = Buffer.alloc(FRAME_HEADER + request.length);
      frame.writeUInt32BE(request.length, 1);
      frame.set(request, FRAME_HEADER);
      const stream = session.request(headers);
      const parts: Buffer[] = [];
      stream.on("data", (part: Buffer) => parts.push(part));
      stream.on("end", () => resolve(Buffer.concat(parts).subarray(FRAME_HEADER)));
      stream.on("error", reject);
      stream.end(frame);
    });
}

/** The request of a user's first page, and its answer. */
export const askedPage = (user_id: string, expected: Buffer, limit = LIMIT) => ({
  request: GetTimelineRequest.encode(GetTimelineRequest.create({ user_id, limit })).finish(),
  expected,
});

export interface Drive {
  readonly inFlight: number;
  readonly until: (calls: number) => boolean;
}

/** Asks for these pages in turn, and checks them; resolves to the number of calls. */
export async function drivePages(
  call: ReturnType<typeof openFrames>,
  pages: readonly ReturnType<typeof askedPage>[],
  { inFlight, until }: Drive,
): Promise<number> {
  let calls = 0;
  const lane = async (): Promise<void> => {
    while (!until(calls)) {
      const { request, expected } = pages[calls++ % pages.length] as (typeof pages)[number];
      check(expected.equals(await call(request)), "each page is the expected one");
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  return calls;
}
