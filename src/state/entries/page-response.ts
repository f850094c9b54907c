import { type PageRequest, tokenOf, toToken } from "../../contracts/page-request.js";
import type { TimelineEntry } from "../../contracts/timelines.js";
import { GetTimelineResponse, type TimelineItem } from "../../gen/avion/timeline.js";
import { type ShownEntry, shownAmong } from "./reposts-once.js";
import type { EncodedPage, Range, Stored } from "./stored.js";

const HAS_MORE = "\x10\x01";
const DROP_TAG = 0x0a;
const [CREATED_AT_TAG, ITEM_TAG] = [0x10, 0x32];
/** Maximum length of a varint of a safe integer, and of what an item has beside its drop and its time, bytes. */
const [VARINT_BYTES, ITEM_BYTES] = [8, 4];

/** Adds `has_more`, cursors and items to a page of read-page.lua, whose drops are encoded already (decision 4). */
export function encodedPage(reply: Buffer): EncodedPage {
  const page = reply.subarray(1);
  const fields = fieldsOf(page);
  const end = fields.at(-1)?.end as number;
  const times = page.toString("latin1", end).split(",").map(Number);
  const cursorAt = (index: number): string => {
    const { start, end: after } = fields.at(index) as DropField;
    return tokenOf(times.at(index) as number, page.subarray(start, after));
  };
  const more = reply[0] === 1 ? HAS_MORE : "";
  const cursors = Buffer.from(more + field(3, cursorAt(-1)) + field(4, cursorAt(0)), "latin1");
  return Buffer.concat([page.subarray(0, end), cursors, encodedItems(page, fields, times)]);
}

/** Encodes items, each of which begins with the field that a page has of its drop. */
function encodedItems(page: Buffer, fields: readonly DropField[], times: readonly number[]): Buffer {
  const drops = fields.at(-1)?.end as number;
  const items = Buffer.allocUnsafe(drops + fields.length * (ITEM_BYTES + VARINT_BYTES));
  let length = 0;
  for (let index = 0; index < fields.length; index++) {
    const { tag, end } = fields[index] as DropField;
    const time = times[index] as number;
    items[length++] = ITEM_TAG;
    length = putVarint(items, length, end - tag + 1 + varintBytes(time));
    // The bytes are few: a call that copies them would take longer.
    for (let byte = tag; byte < end; byte++) items[length++] = page[byte] as number;
    items[length++] = CREATED_AT_TAG;
    length = putVarint(items, length, time);
  }
  return items.subarray(0, length);
}

/** Times of today have 6 bytes. */
const [FIVE_BYTES, SIX_BYTES] = [2 ** 35, 2 ** 42];

function varintBytes(value: number): number {
  if (value >= FIVE_BYTES && value < SIX_BYTES) return 6;
  return value < 128 ? 1 : 1 + varintBytes(Math.floor(value / 128));
}

/** Bits of a number that are shifted as an integer. */
const LOW = 2 ** 28;

function putVarint(target: Buffer, offset: number, value: number): number {
  let end = offset;
  let rest = value;
  if (value >= LOW) {
    const low = value % LOW;
    for (let shift = 0; shift < 28; shift += 7) target[end++] = 128 | ((low >>> shift) & 127);
    rest = (value - low) / LOW;
  }
  for (; rest >= 128; rest = Math.floor(rest / 128)) target[end++] = 128 | (rest % 128);
  target[end++] = rest;
  return end;
}

/** Positions of a drop in a page, and of the tag of its field. */
interface DropField {
  readonly tag: number;
  readonly start: number;
  readonly end: number;
}

function fieldsOf(page: Buffer): DropField[] {
  const fields: DropField[] = [];
  let tag = 0;
  someDrop(page, (start, end) => {
    fields.push({ tag, start, end });
    tag = end;
    return false;
  });
  return fields;
}

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

type Whole = Stored & { readonly page: EncodedPage };

/**
 * Encodes a page. Returns undefined if none is asked for, the page is not complete, a drop of it may be hidden, or
 * reposts of it may be covered by entries that were not read.
 */
export function encodeWhole(stored: Stored, range: Range, repostWindow = 0): Whole | undefined {
  const { direction, page } = range;
  if (stored.page) return { ...stored, page: stored.page };
  const { floor, entries, areAlive, hidden } = stored;
  if (hidden || !page || direction === "newer" || floor === undefined || !areAlive) return undefined;
  if (stored.hasReposts) return encodeReposts({ ...stored, floor }, { ...range, page }, repostWindow);
  const given = entries.slice(0, page.drops + 1);
  const oldest = given.at(-1);
  const isMore = given.length > page.drops;
  const isEnd = floor === 0 && entries.length < range.count;
  if (!oldest || (!isMore && !isEnd) || (floor > 0 && oldest.score <= floor) || oldest.score < page.since)
    return undefined;
  return { floor, entries: [], areAlive, page: encodeEntries(given.slice(0, page.drops), { hasMore: isMore }) };
}

function encodeReposts(
  { floor, entries }: Stored & { readonly floor: number },
  { page, from, count }: Range & { readonly page: NonNullable<Range["page"]> },
  window: number,
): Whole | undefined {
  const complete = entries.filter(({ score }) => floor === 0 || score > floor);
  const isEnd = floor === 0 && entries.length < count;
  const all = shownAmong(complete, window);
  const shown = all.slice(0, page.drops);
  const isWhole = isEnd || (all.length > page.drops && shown.every(({ isNamed }) => isNamed));
  const isRetained = complete.every(({ score }) => score >= page.since);
  if (from || shown.length === 0 || !isWhole || !isRetained) return undefined;
  const originals = new Set(shown.map(({ entry }) => entry.by?.repostOf ?? entry.drop));
  const given = new Set(shown.map(({ entry }) => entry.drop));
  const covered = complete.filter(({ drop, by }) => by?.repostOf && originals.has(by.repostOf) && !given.has(drop));
  const encoded = encodeEntries(
    shown.map(({ entry }) => entry),
    { hasMore: all.length > page.drops },
  );
  return { floor, entries: covered, areAlive: true, page: encoded };
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
export function present(read: readonly ShownEntry[], { page, newestFirst, degraded, reached }: Presentation): Buffer {
  const { limit, cursor } = page;
  const nearest = read.slice(0, limit);
  const entries = newestFirst ? nearest : nearest.toReversed();
  const next = reached && toToken({ ...reached, drop: reached.drop || LOWEST_ID });
  const cursors = { cursor: cursor?.text, ...(newestFirst ? { older: next } : { newer: next }) };
  return encodeEntries(entries, { hasMore: read.length > limit || reached !== undefined, ...cursors, degraded });
}

/** Encodes entries, newest first. `cursor` is returned if there are none. */
function encodeEntries(
  entries: readonly ShownEntry[],
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
    items: entries.map(itemOf),
  };
  const { buffer, byteOffset, byteLength } = GetTimelineResponse.encode(response).finish();
  return Buffer.from(buffer, byteOffset, byteLength);
}

const itemOf = ({ drop, score, by, repostedBy }: ShownEntry): TimelineItem => {
  const repost_of = by?.repostOf ?? "";
  const reposted_by = repostedBy ?? (by && repost_of !== "" ? [by.author] : []);
  return { drop_id: drop, created_at: score, repost_of, reposted_by: [...reposted_by] };
};
