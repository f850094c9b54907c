import { RECENT_KEY } from "../contracts/keys.js";
import { encodeId } from "../kernel/ids.js";
import { chunked } from "../kernel/mapped.js";
import type { Scripts } from "../platform/redis/scripts.js";

const USERS_A_CALL = 1_000;

/** Finds out which of the users have a stream open, or had one less than `windowMs` ago. */
export type Listening = (users: readonly string[]) => Promise<string[]>;

/** Looks the users up in the gateway's index, one command for up to a thousand of them. */
export function createListening({ command }: Scripts, windowMs: number): Listening {
  return async (users) => {
    const since = Date.now() - windowMs;
    const parts = chunked(users, USERS_A_CALL);
    const seen = await Promise.all(
      parts.map((part) => command("zmscore", (client) => client.zmscore(RECENT_KEY, ...part.map(encodeId)))),
    );
    const scores = seen.flat();
    return users.filter((_, index) => scores[index] != null && Number(scores[index]) > since);
  };
}
