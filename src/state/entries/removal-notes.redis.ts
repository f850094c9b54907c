import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { chunked } from "../../kernel/concurrency.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { removalNotesKey } from "../keys.js";
import { script } from "../scripts.redis.js";

const NOTE_REMOVED = script("note-removed", import.meta.url);

const DROPS_A_CALL = 5_000;

/**
 * Notes of drops that left a timeline. The fan-out of a deletion reads the timeline first and these notes next, and so
 * misses no listener who had the drop. Deletions older than the window notify nobody.
 */
export function createRemovalNotes({ run, command }: Scripts) {
  const noteWith = (how: "remove" | "note") => async (timeline: string, drops: readonly string[]) => {
    for (const part of chunked(drops, DROPS_A_CALL))
      await run(NOTE_REMOVED, [timeline, removalNotesKey(timeline)], [NOTIFY_WINDOW_MS, how, ...part]);
  };
  const isIn = async (key: string, drop: string): Promise<boolean> =>
    (await command("zscore", (client) => client.zscore(key, drop))) !== null;
  const wasRemoved = (timeline: string, drop: string) => isIn(removalNotesKey(timeline), drop);
  return {
    remove: noteWith("remove"),
    /** Notes drops that the caller removes next. */
    note: noteWith("note"),
    wasRemoved,
    had: async (timeline: string, drop: string) => (await isIn(timeline, drop)) || wasRemoved(timeline, drop),
  };
}
