import { chunked } from "../../kernel/concurrency.js";
import { sharedNow } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { VEILED_KEY } from "../keys.js";
import type { Standings } from "./standings.redis.js";

const DROPS_A_CALL = 1_000;
const FOR_GOOD = Number.MAX_SAFE_INTEGER;

/** Drops of suspended users that homes may have: a home stores ids without authors. */
export type Veiled = ReturnType<typeof createVeiled>;

/**
 * Opens the veiled drops: a sorted set by the end of the suspension, ms. An entry whose time has passed hides nothing, so
 * that an end needs no event. Homes keep their entries, and show them again as they were.
 */
export function createVeiled({ command }: Pick<Scripts, "command">, standings: Pick<Standings, "of" | "size">) {
  return {
    /** `until` is in ms since the epoch; 0: for good. */
    async add(drops: readonly string[], until: number): Promise<void> {
      const end = until === 0 ? FOR_GOOD : until;
      for (const chunk of chunked(drops, DROPS_A_CALL))
        await command("zadd", (client) => client.zadd(VEILED_KEY, ...chunk.flatMap((drop) => [end, drop])));
      await command("zremrangebyscore", (client) => client.zremrangebyscore(VEILED_KEY, "-inf", sharedNow()));
    },
    async remove(drops: readonly string[]): Promise<void> {
      for (const chunk of chunked(drops, DROPS_A_CALL))
        await command("zrem", (client) => client.zrem(VEILED_KEY, ...chunk));
    },
    /** Returns those of some drops whose author, or the host of whose URI, is suspended. */
    async among(drops: readonly string[]): Promise<ReadonlySet<string>> {
      if (standings.size === 0 || drops.length === 0) return NONE;
      const now = sharedNow();
      const ends = await command("zmscore", (client) => client.zmscore(VEILED_KEY, ...drops));
      const isVeiled = (drop: string, index: number): boolean =>
        Number(ends[index] ?? 0) > now || (drop.includes("://") && standings.of(drop) === "suspended");
      return new Set(drops.filter(isVeiled));
    },
  };
}

const NONE: ReadonlySet<string> = new Set();
