import type { Redis } from "ioredis";
import { hiddenKey } from "../../../src/contracts/keys.js";
import type { Byline } from "../../../src/contracts/timelines.js";
import { chunked, mapLimited } from "../../../src/kernel/concurrency.js";
import { createScripts } from "../../../src/platform/redis/scripts.js";
import { Hidden } from "../../../src/records/hidden.js";
import { createHiddenStore } from "../../../src/records/hidden.redis.js";
import { homeKey } from "../../support/timeline-keys.js";
import { check } from "./result.js";

const KEYS_A_CALL = 500;
export const TTL_MS = 7 * 86_400_000;

/** Drop ids as long as those of the posts service. */
export const dropIds = (count: number, from = 0): string[] =>
  Array.from({ length: count }, (_, number) => String(4_000_000_000_000_000_000n + BigInt(from + number)));

/** Fills sorted sets with as many entries and a floor below them; the newest is `newest`, the others 1 s apart. */
export async function fillKeys(
  redis: Redis,
  keys: readonly string[],
  { entries, newest = Date.now() - 60_000 }: { readonly entries: number; readonly newest?: number },
): Promise<void> {
  const [first, ...others] = keys;
  if (first === undefined) return;
  await redis.del(first);
  const ids = dropIds(entries).map((id, age) => [newest - 1_000 * age, id] as const);
  await redis.zadd(first, ...ids.flat(), newest - 1_000 * entries, "~floor");
  await redis.pexpire(first, TTL_MS);
  for (const some of chunked(others, KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const key of some) pipeline.copy(first, key, "REPLACE");
    for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
  }
}

/** The users hide nobody. */
export async function fillHomes(
  redis: Redis,
  users: readonly string[],
  options: Parameters<typeof fillKeys>[2],
): Promise<void> {
  await fillKeys(redis, users.map(homeKey), options);
  for (const some of chunked(users, KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const user of some) pipeline.hset(hiddenKey(user), "~state", "complete");
    await pipeline.exec();
  }
}

/** Number of these drops in the homes of these users together. */
export const countHeld = (redis: Redis, users: readonly string[], drops: readonly string[]): Promise<number> =>
  countMembers(redis, users.map(homeKey), drops);

/** The same for any sorted sets. */
export async function countMembers(redis: Redis, keys: readonly string[], drops: readonly string[]): Promise<number> {
  let count = 0;
  for (const some of chunked(keys, KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const key of some) pipeline.zmscore(key, ...drops);
    for (const [error, scores] of (await pipeline.exec()) ?? []) {
      if (error) throw error;
      count += (scores as (string | null)[]).filter((score) => score !== null).length;
    }
  }
  return count;
}

/** Each of these homes holds each of these drops. */
export async function checkHomes(redis: Redis, users: readonly string[], drops: readonly string[]): Promise<void> {
  const count = await countHeld(redis, users, drops);
  check(count === users.length * drops.length, `${count} of ${users.length * drops.length} entries are there`);
}

/** What a reader of pages needs where nobody hides anybody. */
export const NOBODY_HIDDEN = {
  hidden: { held: async () => undefined, lastKnown: (user: string) => new Hidden(user, new Map()) },
  bylinesOf: async () => new Map<string, Byline>(),
};

/** Stores whom these users hide, as the service does. */
export async function storeHidden(redis: Redis, all: ReadonlyMap<string, readonly string[]>): Promise<void> {
  const readHidden = async (user: string) => new Map(all.get(user)?.map((target) => [target, "all"] as const));
  const hidden = createHiddenStore(createScripts(redis), readHidden, TTL_MS);
  await mapLimited([...all.keys()], 32, (user) => hidden.fill(user));
}
