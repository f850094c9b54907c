import type { TimelineEntry } from "../contracts/timelines.js";
import { GetTimelineResponse } from "../gen/avion/timeline.js";
import { type PageRequest, toToken } from "./page-request.js";
import type { EncodedPage, Range, Stored } from "./stored.js";

/** Returns undefined where a page is not asked for or not complete, or a drop of it may be hidden. */
export function encodeWhole({ floor, entries, areAlive }: Stored, { direction, page }: Range): EncodedPage | undefined {
  if (!page || direction === "newer" || floor === undefined || !areAlive) return undefined;
  const given = entries.slice(0, page.drops + 1);
  const oldest = given.at(-1);
  const isMore = given.length > page.drops;
  if (!oldest || (!isMore && floor > 0) || (floor > 0 && oldest.score <= floor) || oldest.score < page.since)
    return undefined;
  return encodeEntries(given.slice(0, page.drops), { hasMore: isMore });
}

interface Presentation {
  readonly page: PageRequest;
  readonly newestFirst: boolean;
  readonly degraded: boolean;
  /** A page that has fewer entries than there are goes on here. */
  readonly reached?: TimelineEntry | undefined;
}

/** This is below every id, and an id itself. */
const LOWEST_ID = "\u0001";

/** Encodes a GetTimelineResponse. */
export function present(
  read: readonly TimelineEntry[],
  { page, newestFirst, degraded, reached }: Presentation,
): Buffer {
  const { limit, cursor } = page;
  const nearest = read.slice(0, limit);
  const entries = newestFirst ? nearest : nearest.toReversed();
  const next = reached && toToken({ ...reached, drop: reached.drop || LOWEST_ID });
  const cursors = { cursor: cursor?.text, ...(newestFirst ? { older: next } : { newer: next }) };
  return encodeEntries(entries, { hasMore: read.length > limit || reached !== undefined, ...cursors, degraded });
}

/** Entries newest first; `cursor` is handed back where there are none. */
function encodeEntries(
  entries: readonly TimelineEntry[],
  {
    hasMore,
    cursor = "",
    older,
    newer,
    degraded = false,
  }: {
    readonly hasMore: boolean;
    readonly cursor?: string | undefined;
    /** Both tokens replace those of the last and the first entry. */
    readonly older?: string | undefined;
    readonly newer?: string | undefined;
    readonly degraded?: boolean;
  },
): Buffer {
  const [newest, oldest] = [entries[0], entries.at(-1)];
  const response = {
    drop_ids: entries.map(({ drop }) => drop),
    has_more: hasMore,
    next_max_id: older ?? (oldest ? toToken(oldest) : cursor),
    prev_min_id: newer ?? (newest ? toToken(newest) : cursor),
    degraded,
  };
  const { buffer, byteOffset, byteLength } = GetTimelineResponse.encode(response).finish();
  return Buffer.from(buffer, byteOffset, byteLength);
}
