import { takenKey } from "../../contracts/keys.js";
import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { chunked } from "../../kernel/concurrency.js";
import type { Scripts } from "./scripts.js";

const DROPS_A_CALL = 5_000;

/**
 * Drops that were removed from timelines before the fan-out of their deletion looked for listeners who have them. It
 * reads the timeline first and these notes next, and so misses nobody. Deletions older than the window notify nobody.
 */
export function createTaken({ run, command }: Scripts) {
  const take = (how: "remove" | "note") => async (timeline: string, drops: readonly string[]) => {
    for (const part of chunked(drops, DROPS_A_CALL))
      await run("take-drops", [timeline, takenKey(timeline)], [NOTIFY_WINDOW_MS, how, ...part]);
  };
  const isIn = async (key: string, drop: string): Promise<boolean> =>
    (await command("zscore", (client) => client.zscore(key, drop))) !== null;
  const wasTaken = (timeline: string, drop: string) => isIn(takenKey(timeline), drop);
  return {
    remove: take("remove"),
    /** Before they are removed. */
    note: take("note"),
    wasTaken,
    had: async (timeline: string, drop: string) => (await isIn(timeline, drop)) || wasTaken(timeline, drop),
  };
}
