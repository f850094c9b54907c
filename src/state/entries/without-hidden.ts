import type { Byline, TimelineEntry } from "../../contracts/timelines.js";
import type { HiddenUsers } from "../hidden/hidden.js";
import type { TimelineStore } from "./store.redis.js";
import type { Stored } from "./stored.js";

type HidingStore = Pick<TimelineStore, "read" | "bylinesOf" | "keepBylines">;

const UNKNOWN_BYLINE: Byline = { author: "" };

/**
 * Reads local or global, and marks the drops that a viewer does not see. `readBylines` returns the bylines of drops
 * that were written without one by an older version. Drops that it lacks are shown to all; while it fails the timeline
 * is not complete.
 */
export const withoutHidden =
  (
    store: HidingStore,
    viewer: HiddenUsers,
    readBylines: () => Promise<readonly TimelineEntry[]>,
  ): TimelineStore["read"] =>
  async (range) => {
    const stored = await store.read(range);
    if (viewer.size === 0 || stored.floor === undefined) return stored;
    const drops = stored.entries.map(({ drop }) => drop);
    const known = await store.bylinesOf(range.key, drops);
    const unknown = stored.entries.filter(({ drop }) => !known.has(drop));
    if (unknown.length === 0) return withHidden(stored, viewer, known);
    const logged = await readBylines().catch(() => undefined);
    if (!logged) return { ...(await withHidden(stored, viewer, known)), floor: undefined };
    const authors = new Map(logged.map(({ drop, by }) => [drop, by]));
    const learnt = unknown.map((entry) => ({ ...entry, by: authors.get(entry.drop) ?? UNKNOWN_BYLINE }));
    await store.keepBylines(range.key, learnt);
    return withHidden(stored, viewer, new Map([...known, ...learnt.map(({ drop, by }) => [drop, by] as const)]));
  };

async function withHidden(stored: Stored, viewer: HiddenUsers, bylines: ReadonlyMap<string, Byline>): Promise<Stored> {
  const asked = await viewer.among(bylines.values());
  const hidden = [...bylines].filter(([, by]) => asked.hides(by)).map(([drop]) => drop);
  return hidden.length === 0 ? stored : { ...stored, hidden: new Set(hidden) };
}
