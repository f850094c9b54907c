import type { TimelineEntry } from "../../contracts/timelines.js";

/** Returns the entries of a reply in which each member is followed by its score. The floor of a timeline is one of them. */
export function entriesIn(flat: readonly string[]): TimelineEntry[] {
  const entries: TimelineEntry[] = [];
  for (let index = 0; index < flat.length; index += 2)
    entries.push({ drop: flat[index] as string, score: Number(flat[index + 1]) });
  return entries;
}
