import { compareEntries, type TimelineEntry } from "../contracts/timelines.js";
import type { Origin } from "./page-cache.js";
import { encodeEntries } from "./page-response.js";
import type { Range, Stored } from "./stored.js";

/** The entries of a pulled author that a home may take. */
export interface Part {
  readonly key: string;
  readonly stored: Stored;
  readonly tokens: Origin["tokens"] | undefined;
}

/**
 * The entries of a range, nearest first, as far as a home has room for them; undefined if they go beyond the `size` newest
 * ones of the author.
 */
export function partOfHead(
  { entries, floor }: Stored,
  size: number,
  { range: { direction, from, count }, home }: { readonly range: Range; readonly home: Stored },
): readonly TimelineEntry[] | undefined {
  if (floor === undefined) return undefined;
  const isWhole = entries.length < size;
  const last = home.entries.length >= count ? home.entries.at(-1) : undefined;
  const oldest = entries.at(-1);
  if (direction === "older") {
    const part: TimelineEntry[] = [];
    for (const entry of entries) {
      if (from && compareEntries(entry, from) >= 0) continue;
      if (part.length === count || (last && compareEntries(entry, last) <= 0)) return part;
      part.push(entry);
    }
    return isWhole || part.length === count ? part : undefined;
  }
  if (!isWhole && (!from || !oldest || compareEntries(oldest, from) > 0)) return undefined;
  const end = from ? entries.findIndex((entry) => compareEntries(entry, from) <= 0) : -1;
  const newer = entries.slice(0, end < 0 ? entries.length : end).reverse();
  return newer.slice(0, count).filter((entry) => !last || compareEntries(entry, last) < 0);
}

/** Each drop once, with its smallest time. In a cluster, and where authors are cached; elsewhere read-page.lua merges. */
export function merge({ key, direction, count, page }: Range, home: Stored, parts: readonly Part[]): Stored {
  const entries = new Map<string, TimelineEntry>();
  let floor = home.floor ?? 0;
  const incomplete = home.floor === undefined ? [key] : [];
  let areAlive = home.areAlive;
  const take = ({ entries: some, ...stored }: Stored): void => {
    for (const entry of some) {
      const known = entries.get(entry.drop);
      if (!known || entry.score < known.score) entries.set(entry.drop, entry);
    }
    floor = Math.max(floor, stored.floor ?? 0);
    areAlive &&= stored.areAlive;
  };
  take(home);
  for (const { key: author, stored } of parts) {
    take(stored);
    if (stored.floor === undefined) incomplete.push(author);
  }
  const sign = direction === "older" ? -1 : 1;
  const nearest = [...entries.values()].sort((a, b) => sign * compareEntries(a, b)).slice(0, count);
  const isComplete = incomplete.length === 0;
  const pulled = { areKnown: true, keys: parts.map((part) => part.key), incomplete, areNamed: false };
  const encoded = isComplete && areAlive && direction === "older" && page && encodeWhole(nearest, floor, page);
  if (encoded) return { floor, entries: [], areAlive, page: encoded };
  return { floor: isComplete ? floor : undefined, entries: nearest, areAlive, pulled };
}

/** As read-page.lua does: undefined where the page is not complete, or retention hides a drop. */
function encodeWhole(
  nearest: readonly TimelineEntry[],
  floor: number,
  { drops, since }: NonNullable<Range["page"]>,
): Buffer | undefined {
  const given = nearest.slice(0, drops + 1);
  const oldest = given.at(-1);
  const isMore = given.length > drops;
  if (!oldest || (!isMore && floor > 0) || (floor > 0 && oldest.score <= floor) || oldest.score < since)
    return undefined;
  return encodeEntries(given.slice(0, drops), { hasMore: isMore });
}
