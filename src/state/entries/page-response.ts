import { type PageRequest, tokenOf, toToken } from "../../contracts/page-request.js";
import type { TimelineEntry } from "../../contracts/timelines.js";
import { GetTimelineResponse } from "../../gen/avion/timeline.js";
import type { EncodedPage, Range, Stored } from "./stored.js";

const HEADER = { newest: 1, oldest: 10, bytes: 19 } as const;
const HAS_MORE = "\x10\x01";

/** Adds `has_more` and the cursors to a page of read-page.lua, whose drops are encoded already (decision 4). */
export function encodedPage(reply: Buffer): EncodedPage {
  const drops = reply.subarray(HEADER.bytes);
  const [newestLength, oldestLength] = [reply[HEADER.newest + 8] as number, reply[HEADER.oldest + 8] as number];
  const start = newestLength < 128 ? 2 : 3;
  const newest = tokenOf(reply.readDoubleBE(HEADER.newest), drops.subarray(start, start + newestLength));
  const oldest = tokenOf(reply.readDoubleBE(HEADER.oldest), drops.subarray(drops.length - oldestLength));
  const more = reply[0] === 1 ? HAS_MORE : "";
  return Buffer.concat([drops, Buffer.from(more + field(3, oldest) + field(4, newest), "latin1")]);
}

const DROP_TAG = 0x0a;

/**
 * Passes the bytes of each drop of an encoded page to `fits`, until it returns true. Drops come first; ids have at most
 * 128 bytes.
 */
export function someDrop(page: EncodedPage, fits: (start: number, end: number) => boolean): boolean {
  for (let position = 0; page[position] === DROP_TAG; ) {
    const length = page[position + 1] as number;
    const start = position + (length < 128 ? 2 : 3);
    position = start + (length < 128 ? length : (length % 128) + 128 * (page[position + 2] as number));
    if (fits(start, position)) return true;
  }
  return false;
}

export function dropsOf(page: EncodedPage): string[] {
  const drops: string[] = [];
  someDrop(page, (start, end) => {
    drops.push(page.toString("utf8", start, end));
    return false;
  });
  return drops;
}

/** Encodes a text, which is ASCII and shorter than 2^14. */
function field(number: number, text: string): string {
  const { length } = text;
  const size = length < 128 ? [length] : [128 + (length % 128), length >> 7];
  return String.fromCharCode(number * 8 + 2, ...size) + text;
}

/** Returns undefined if no page is asked for, the page is not complete, or a drop of it may be hidden. */
export function encodeWhole(stored: Stored, { direction, page }: Range): EncodedPage | undefined {
  if (stored.page) return stored.page;
  const { floor, entries, areAlive, hidden } = stored;
  if (hidden || !page || direction === "newer" || floor === undefined || !areAlive) return undefined;
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
  /** Position from which the next page continues, if this one has fewer entries than exist. */
  readonly reached?: TimelineEntry | undefined;
}

/** Lowest id, itself valid. */
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

/** Encodes entries, newest first. `cursor` is returned if there are none. */
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
    /** Token that replaces that of the last entry; `newer` replaces that of the first. */
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
