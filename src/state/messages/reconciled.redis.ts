import { randomUUID } from "node:crypto";
import { LOG_AGE_MS } from "../../contracts/times.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { RECONCILED_KEY, UNRECONCILED_KEY } from "../keys.js";

export interface ReconciledUpTo {
  /** Resolves to undefined before the first round, and if Redis has lost the time. */
  read(): Promise<number | undefined>;
  write(upTo: number): Promise<void>;
}

export interface Unreconciled {
  /** Notes the time from `since` until now. */
  note(since: number): Promise<void>;
  /** Resolves to the earliest time, which is infinite if there is none. */
  read(): Promise<{ readonly since: number; readonly names: readonly string[] }>;
  forget(names: readonly string[]): Promise<void>;
}

export function createUnreconciled({ command }: Pick<Scripts, "command">): Unreconciled {
  return {
    note: async (since) => {
      await command("zadd", (client) => client.zadd(UNRECONCILED_KEY, since, randomUUID()));
      await command("pexpire", (client) => client.pexpire(UNRECONCILED_KEY, LOG_AGE_MS));
    },
    read: async () => {
      const flat = await command("zrange", (client) => client.zrange(UNRECONCILED_KEY, "0", "-1", "WITHSCORES"));
      const names = flat.filter((_, index) => index % 2 === 0);
      return { names, since: names.length === 0 ? Number.POSITIVE_INFINITY : Number(flat[1]) };
    },
    forget: async (names) => {
      if (names.length > 0) await command("zrem", (client) => client.zrem(UNRECONCILED_KEY, ...names));
    },
  };
}

export function createReconciledUpTo({ command }: Pick<Scripts, "command">): ReconciledUpTo {
  return {
    read: async () => {
      const upTo = await command("get", (client) => client.get(RECONCILED_KEY));
      return upTo === null ? undefined : Number(upTo);
    },
    write: async (upTo) => {
      await command("set", (client) => client.set(RECONCILED_KEY, upTo, "PX", LOG_AGE_MS));
    },
  };
}
