import { LIMIT_PREFIX, limitOfKey } from "../contracts/keys.js";
import type { LimitKind } from "../contracts/limits.js";
import { mapLimited } from "../kernel/concurrency.js";
import { pause, sharedNow } from "../kernel/time.js";
import type { Limit } from "../kernel/variables.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { dataNodes } from "../platform/redis/servers.js";

/** All keys of Redis are scanned: at most 100,000 a second of each server, so that others are served meanwhile. */
const KEYS_A_STEP = 1_000;
const STEP_MS = 10;
const AT_ONCE = 32;

export interface AtLimit {
  readonly user: string;
  readonly kind: LimitKind;
  readonly used: number;
  readonly limit: Limit;
  /** ms since the epoch. */
  readonly freeAt: number;
}

/**
 * Yields each limit that a user has reached now, in no order. It changes nothing: the processes may have other limits.
 *
 * @throws AppError `unavailable` while Redis is away
 */
export async function* listAtLimit(
  scripts: Scripts,
  limits: Readonly<Record<LimitKind, Limit | undefined>>,
): AsyncGenerator<AtLimit> {
  const { command } = scripts;
  const look = async (key: string): Promise<AtLimit | undefined> => {
    const found = limitOfKey(key);
    const limit = found && limits[found.kind];
    if (found === undefined || limit === undefined) return undefined;
    const { most, withinMs } = limit;
    const used = await command("zcount", (client) => client.zcount(key, `(${sharedNow() - withinMs}`, "+inf"));
    if (used < most) return undefined;
    const [, time] = await command("zrange", (client) => client.zrange(key, `${-most}`, `${-most}`, "WITHSCORES"));
    return time === undefined ? undefined : { ...found, limit, used, freeAt: Number(time) + withinMs };
  };
  const listed = new Set<string>();
  for (const node of await dataNodes(scripts)) {
    let cursor = "0";
    do {
      const { next, keys } = await node.scan(cursor, LIMIT_PREFIX, KEYS_A_STEP);
      const others = [...new Set(keys)].filter((key) => !listed.has(key));
      const found = await mapLimited(others, AT_ONCE, async (key) => [key, await look(key)] as const);
      for (const [key, one] of found) {
        if (one === undefined) continue;
        listed.add(key);
        yield one;
      }
      await pause(STEP_MS);
      cursor = next;
    } while (cursor !== "0");
  }
}
