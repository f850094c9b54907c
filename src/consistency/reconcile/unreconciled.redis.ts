import { randomUUID } from "node:crypto";
import { UNRECONCILED_KEY } from "../../contracts/keys.js";
import { LOG_AGE_MS } from "../../contracts/times.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Unreconciled } from "./reconcile.js";

export function createUnreconciled({ command }: Pick<Scripts, "command">): Unreconciled {
  return {
    note: async (since) => {
      await command("zadd", (client) => client.zadd(UNRECONCILED_KEY, since, randomUUID()));
      await command("pexpire", (client) => client.pexpire(UNRECONCILED_KEY, LOG_AGE_MS));
    },
    read: async () => {
      const held = await command("zrange", (client) => client.zrange(UNRECONCILED_KEY, "0", "-1", "WITHSCORES"));
      const names = held.filter((_, at) => at % 2 === 0);
      return { names, since: names.length === 0 ? Number.POSITIVE_INFINITY : Number(held[1]) };
    },
    forget: async (names) => {
      if (names.length > 0) await command("zrem", (client) => client.zrem(UNRECONCILED_KEY, ...names));
    },
  };
}
