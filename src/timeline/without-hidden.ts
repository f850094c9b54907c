import type { Hidden } from "../records/hidden.js";
import type { TimelineStore } from "./store.redis.js";

type HidingStore = Pick<TimelineStore, "read" | "bylinesOf" | "loseFloor">;

/**
 * Reads local or global, and tells which of the drops a viewer does not see. A timeline that a version without bylines
 * wrote is rebuilt.
 */
export const withoutHidden =
  (store: HidingStore, viewer: Hidden): TimelineStore["read"] =>
  async (range) => {
    const stored = await store.read(range);
    if (viewer.size === 0 || stored.floor === undefined) return stored;
    const bylines = await store.bylinesOf(
      range.key,
      stored.entries.map(({ drop }) => drop),
    );
    if (stored.entries.some(({ drop }) => !bylines.has(drop))) {
      await store.loseFloor(range.key);
      return { ...stored, floor: undefined };
    }
    const hidden = [...bylines].filter(([, by]) => viewer.hides(by)).map(([drop]) => drop);
    return hidden.length === 0 ? stored : { ...stored, hidden: new Set(hidden) };
  };
