import type { Byline, TimelineEntry } from "../../contracts/timelines.js";
import type { HiddenUsers } from "../hidden/hidden.js";
import type { TimelineStore } from "./store.redis.js";
import type { Stored } from "./stored.js";

type HidingStore = Pick<TimelineStore, "read" | "bylinesOf" | "keepBylines">;

const NOBODY: Byline = { author: "" };

/**
 * Reads local or global, and tells which of the drops a viewer does not see. Of drops that a version without bylines
 * wrote, `readBylines` tells who they are by. Those that it lacks are shown to all. While it fails the timeline is not
 * complete.
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
    if (unknown.length === 0) return judged(stored, viewer, known);
    const logged = await readBylines().catch(() => undefined);
    if (!logged) return { ...(await judged(stored, viewer, known)), floor: undefined };
    const authors = new Map(logged.map(({ drop, by }) => [drop, by]));
    const learnt = unknown.map((entry) => ({ ...entry, by: authors.get(entry.drop) ?? NOBODY }));
    await store.keepBylines(range.key, learnt);
    return judged(stored, viewer, new Map([...known, ...learnt.map(({ drop, by }) => [drop, by] as const)]));
  };

async function judged(stored: Stored, viewer: HiddenUsers, bylines: ReadonlyMap<string, Byline>): Promise<Stored> {
  const asked = await viewer.among(bylines.values());
  const hidden = [...bylines].filter(([, by]) => asked.hides(by)).map(([drop]) => drop);
  return hidden.length === 0 ? stored : { ...stored, hidden: new Set(hidden) };
}
