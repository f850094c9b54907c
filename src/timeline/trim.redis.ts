import { HOME_PREFIX, packKeys, SHARED_PREFIX, SHARED_TOKENS, TRIMMED_KEY } from "../contracts/keys.js";
import { encodeId } from "../kernel/ids.js";
import { DAY } from "../kernel/time.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { allHomes } from "./homes.redis.js";
import type { TrimStore } from "./trim.js";

/** Timelines as the trimming of old drops sees them. */
export function createTrimStore(scripts: Scripts, fenced: Fenced): TrimStore {
  const trim = (prefix: string, tokens: readonly string[], before: number): Promise<number> =>
    fenced.many({ script: "trim-older", prefix, keys: packKeys(tokens), before: [before], after: [] });
  return {
    trimmedTo: async () => Number((await scripts.command("get", (client) => client.get(TRIMMED_KEY))) ?? 0),
    noteTrimmed: async (before) => {
      await scripts.command("set", (client) => client.set(TRIMMED_KEY, before, "PX", DAY));
    },
    async *trimAll(before) {
      yield await trim(SHARED_PREFIX, Object.values(SHARED_TOKENS), before);
      for await (const { users } of allHomes(scripts)) yield await trim(HOME_PREFIX, users.map(encodeId), before);
    },
  };
}
