import { hostsOf } from "../../contracts/standings.js";
import { compareEntries, type TimelineEntry } from "../../contracts/timelines.js";
import type { Range, Stored } from "./stored.js";

/** Entries of a pulled author's timeline that may belong in a page of a home. */
export interface MergedPart {
  readonly key: string;
  readonly stored: Stored;
}

/**
 * Returns the entries of a range, nearest first, as far as a home has room for them. Returns undefined if the range
 * goes beyond the `size` newest entries of the author.
 */
export function partOfHead(
  { entries, floor }: Stored,
  size: number,
  { range: { direction, from, count }, home }: { readonly range: Range; readonly home: Pick<Stored, "entries"> },
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

/** Names the actor of another server whose timeline it is as the author of its entries: their ids may name no host. */
export function signedByActor<Part extends MergedPart>(author: string, part: Part): Part {
  if (hostsOf(author).length === 0) return part;
  const entries = part.stored.entries.map((entry) => ({ ...entry, by: entry.by ?? { author } }));
  return { ...part, stored: { ...part.stored, entries } };
}

/** Merges timelines. Takes each drop once, with its smallest time among the entries that the home has room for. */
export function merge({ key, direction, count }: Range, home: Stored, parts: readonly MergedPart[]): Stored {
  const sign = direction === "older" ? -1 : 1;
  const last = home.entries.length >= count ? home.entries.at(-1) : undefined;
  const entries = new Map<string, TimelineEntry>();
  const take = (entry: TimelineEntry): void => {
    if (last && sign * compareEntries(entry, last) > 0) return;
    const known = entries.get(entry.drop);
    if (!known || entry.score < known.score) entries.set(entry.drop, entry);
  };
  const all = [home, ...parts.map(({ stored }) => stored)];
  for (const { entries: entriesOfOne } of all) entriesOfOne.forEach(take);
  const nearest = [...entries.values()].sort((a, b) => sign * compareEntries(a, b)).slice(0, count);
  const merged = parts.map((part) => part.key);
  const keys = [key, ...merged].filter((_, index) => all[index]?.floor === undefined);
  const incomplete = keys.length > 0 ? { keys, arePullsKnown: true } : undefined;
  const floor = incomplete ? undefined : Math.max(...all.map((stored) => stored.floor as number));
  const areAlive = all.every((stored) => stored.areAlive);
  const hasReposts = all.some((stored) => stored.hasReposts);
  return { floor, entries: nearest, areAlive, ...(hasReposts && { hasReposts }), merged, incomplete };
}
