import type { TimelineEntry } from "../../src/contracts/timelines.js";

/** The default of TIMELINE_HOME_REPOST_WINDOW. */
export const REPOST_WINDOW = 40;

/** An item of a page, as far as the rule decides about it. */
export interface Once {
  readonly drop: string;
  readonly repostedBy: readonly string[];
}

const originalOf = ({ drop, by }: TimelineEntry): string => by?.repostOf ?? drop;

/** Reposts once, as the contract words it: each entry against each of the `window` entries above and below it. */
export function onceIn(entries: readonly TimelineEntry[], window: number): Once[] {
  return entries.flatMap((entry, place) => {
    const covers = (others: readonly TimelineEntry[]) =>
      others.filter((other) => originalOf(other) === originalOf(entry));
    if (covers(entries.slice(Math.max(0, place - window), place)).length > 0) return [];
    const reposts = covers(entries.slice(place + 1, place + 1 + window)).filter(({ by }) => by?.repostOf);
    const names = [entry, ...reposts].flatMap(({ by }) => by?.author ?? []);
    return [{ drop: entry.drop, repostedBy: entry.by?.repostOf ? [...new Set(names)].slice(0, 3) : [] }];
  });
}
