import type { LimitKind } from "../../contracts/limits.js";
import type { AtLimit } from "../../contracts/tables.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { sharedNow } from "../../kernel/time.js";
import type { Limit } from "../../kernel/variables.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { LIMIT_PREFIX, limitOfKey } from "../keys.js";
import { scanKeys } from "../scan-keys.redis.js";

const AT_ONCE = 32;

/**
 * Yields the limits that users have reached now, in no order.
 *
 * @throws AppError `unavailable` while Redis is away
 */
export async function* listAtLimit(
  scripts: Scripts,
  limits: Readonly<Record<LimitKind, Limit | undefined>>,
): AsyncGenerator<AtLimit> {
  const { command } = scripts;
  const look = async (key: string): Promise<AtLimit | undefined> => {
    const named = limitOfKey(key);
    const limit = named && limits[named.kind];
    if (named === undefined || limit === undefined) return undefined;
    const { most, withinMs } = limit;
    const used = await command("zcount", (client) => client.zcount(key, `(${sharedNow() - withinMs}`, "+inf"));
    if (used < most) return undefined;
    const [, time] = await command("zrange", (client) => client.zrange(key, `${-most}`, `${-most}`, "WITHSCORES"));
    if (time === undefined) return undefined;
    const free_at = new Date(Number(time) + withinMs).toISOString();
    return { user_id: named.user, limit: named.kind, used, most, within: limit.within, free_at };
  };
  const listed = new Set<string>();
  for await (const { keys } of scanKeys(scripts, LIMIT_PREFIX)) {
    const others = keys.filter((key) => !listed.has(key));
    const answers = await mapLimited(others, AT_ONCE, async (key) => [key, await look(key)] as const);
    for (const [key, atLimit] of answers) {
      if (atLimit === undefined) continue;
      listed.add(key);
      yield atLimit;
    }
  }
}
