import { chunked } from "../../kernel/concurrency.js";
import { encodeId } from "../../kernel/ids.js";
import { MINUTE } from "../../kernel/time.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import type { Erased } from "../erased/erasures.js";
import { forgetFollows } from "../erased/walk.redis.js";
import { followsKeyOfHome, HIDDEN_STATE } from "../keys.js";
import { ANSWERED, FOLLOWED, type Follows } from "./follows.js";

const FIELDS_A_CALL = 5_000;
const STAGED_TTL_MS = MINUTE;
const COMPLETE = "complete";

/** Reads and stages the copies of whom users follow, which are beside their homes. */
export function createFollowsStore({ command }: Pick<Scripts, "command">, judgesReplies: boolean) {
  return {
    /** Resolves to true if the home has a copy and must have one, or has none and must not; see read-page.lua. */
    async isRight(home: string): Promise<boolean> {
      const state = await command("hget", (client) => client.hget(followsKeyOfHome(home), HIDDEN_STATE));
      return (state === COMPLETE) === judgesReplies;
    },
    /** Resolves to those of these users whom the user of a home follows; to undefined if there is no copy. */
    async followedAmong(home: string, users: readonly string[]): Promise<ReadonlySet<string> | undefined> {
      const fields = [HIDDEN_STATE, ...users.map(encodeId)];
      const [state, ...values] = await command("hmget", (client) => client.hmget(followsKeyOfHome(home), ...fields));
      if (state !== COMPLETE) return undefined;
      return new Set(users.filter((_, index) => values[index] === FOLLOWED || values[index] === ANSWERED));
    },
    /** Stores the copy that finish-rebuild.lua puts in place. Resolves to its number of fields. */
    async stage(key: string, follows: Follows | undefined): Promise<number> {
      const fields = follows?.fields() ?? [];
      // Each call renews the time to live, so that a crash between two calls leaves a key that ends.
      for (const chunk of chunked(fields, FIELDS_A_CALL)) {
        await command("hset", (client) => client.hset(key, new Map(chunk)));
        await command("pexpire", (client) => client.pexpire(key, STAGED_TTL_MS));
      }
      return fields.length;
    },
  };
}

/** Forgets those in a new copy who were erased while it was made: their erasure may have passed it. */
export async function forgetErased(
  scripts: Pick<Scripts, "run">,
  { among }: Pick<Erased, "among">,
  { home, follows }: { readonly home: string; readonly follows: Follows | undefined },
): Promise<void> {
  const gone = [...(await among(follows?.users() ?? []))].map(encodeId);
  for (const chunk of chunked(gone, FIELDS_A_CALL)) await forgetFollows(scripts, home, chunk);
}
