import { NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { chunked } from "../../kernel/concurrency.js";
import { sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { PUBLISHING_KEY } from "../keys.js";
import { script } from "../scripts.redis.js";

const NOTE_PUBLISHING = script("note-publishing", import.meta.url);

/** Maximum number of drops in a call, which blocks Redis. */
const DROPS_A_CALL = 1_000;

interface Admitted {
  readonly drop_id: string;
  /** Time of the admission, in ms since the epoch. */
  readonly admitted_at: number;
}

/** Drops whose publication is under way: homes may have them before their users are notified. */
export interface Publishing {
  /** Resolves before any home may have the drops. A publication that breaks off leaves its note. */
  begin(drops: readonly Admitted[]): Promise<void>;
  /** Called once all listeners are notified. */
  end(drops: readonly string[]): Promise<void>;
  /** Returns those of the drops that listeners may still be notified of. */
  among(drops: readonly string[]): Promise<readonly string[]>;
}

export function createPublishing({ run, command }: Scripts): Publishing {
  // Nobody is notified of a drop that was admitted earlier.
  const oldest = () => sharedNow() - NOTIFY_WINDOW_MS;
  return {
    begin: async (drops) => {
      for (const chunk of chunked(drops, DROPS_A_CALL)) {
        const members = chunk.flatMap(({ drop_id, admitted_at }) => [admitted_at, drop_id]);
        await run(NOTE_PUBLISHING, [PUBLISHING_KEY], [NOTIFY_WINDOW_MS, oldest(), ...members]);
      }
    },
    end: async (drops) => {
      for (const chunk of chunked(drops, DROPS_A_CALL))
        await command("zrem", (client) => client.zrem(PUBLISHING_KEY, ...chunk));
    },
    among: async (drops) => {
      const times = await command("zmscore", (client) => client.zmscore(PUBLISHING_KEY, ...drops));
      return drops.filter((_, index) => Number(times[index] ?? 0) > oldest());
    },
  };
}
