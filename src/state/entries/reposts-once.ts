import type { TimelineEntry } from "../../contracts/timelines.js";

/** An entry of a page; a repost with its author, and with up to two users whose reposts it covers, newest first. */
export interface ShownEntry extends TimelineEntry {
  readonly repostedBy?: readonly string[];
}

export interface Shown {
  readonly entry: ShownEntry;
  /** Index among the entries that were given. */
  readonly place: number;
  /** False: older entries, which were not given, may name more users. */
  readonly isNamed: boolean;
}

const MAX_NAMES = 3;

const originalOf = ({ drop, by }: TimelineEntry): string => by?.repostOf ?? drop;

/**
 * Leaves out each entry that one of at most `window` places above it covers: that entry has the same original, and a
 * drop that is no repost is its own. Entries that are left out cover others, too. Takes all entries that the viewer
 * sees in a part of a home, newest first; the newest `window` of them may lack what covers them.
 */
export function shownAmong(entries: readonly TimelineEntry[], window: number): Shown[] {
  const latest = new Map<string, number>();
  const shown: Shown[] = [];
  for (const [place, entry] of entries.entries()) {
    const original = originalOf(entry);
    const above = latest.get(original);
    latest.set(original, place);
    if (above === undefined || place - above > window) shown.push(namedAt(entries, place, window));
  }
  return shown;
}

function namedAt(entries: readonly TimelineEntry[], place: number, window: number): Shown {
  const entry = entries[place] as TimelineEntry;
  const { by } = entry;
  if (by?.repostOf === undefined) return { entry, place, isNamed: true };
  const names = new Set([by.author]);
  const end = place + window;
  for (let below = place + 1; below <= end && below < entries.length && names.size < MAX_NAMES; below++) {
    const other = entries[below]?.by;
    if (other?.repostOf === by.repostOf) names.add(other.author);
  }
  const isNamed = names.size === MAX_NAMES || end < entries.length;
  return { entry: { ...entry, repostedBy: [...names] }, place, isNamed };
}
