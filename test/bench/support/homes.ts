import type { Cluster, Redis } from "ioredis";
import type { Byline } from "../../../src/contracts/timelines.js";
import { chunked, mapLimited } from "../../../src/kernel/concurrency.js";
import { createScripts } from "../../../src/platform/redis/scripts.js";
import { Follows } from "../../../src/state/entries/follows.js";
import { Hidden } from "../../../src/state/hidden/hidden.js";
import { createHiddenStore } from "../../../src/state/hidden/hidden.redis.js";
import { followsKeyOfHome, HIDDEN_STATE, hiddenKey } from "../../../src/state/keys.js";
import { inOnePage, NOBODY_ERASED } from "../../support/redis.js";
import { homeKey } from "../../support/timeline-keys.js";
import { check } from "./result.js";

const KEYS_A_CALL = 500;
export const TTL_MS = 7 * 86_400_000;

/** Drop ids as long as those of the posts service. */
export const dropIds = (count: number, from = 0): string[] =>
  Array.from({ length: count }, (_, number) => String(4_000_000_000_000_000_000n + BigInt(from + number)));

interface Filling {
  readonly entries: number;
  readonly newest?: number;
}

/** Fills a sorted set with as many entries and a floor below them; the newest is `newest`, the others 1 s apart. */
export async function fillKey(
  redis: Redis | Cluster,
  key: string,
  { entries, newest = Date.now() - 60_000 }: Filling,
): Promise<void> {
  await redis.del(key);
  const ids = dropIds(entries).map((id, age) => [newest - 1_000 * age, id] as const);
  await redis.zadd(key, ...ids.flat(), newest - 1_000 * entries, "~floor");
  await redis.pexpire(key, TTL_MS);
}

/** Fills many alike. */
export async function fillKeys(redis: Redis, keys: readonly string[], filling: Filling): Promise<void> {
  const [first, ...others] = keys;
  if (first === undefined) return;
  await fillKey(redis, first, filling);
  for (const some of chunked(others, KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const key of some) pipeline.copy(first, key, "REPLACE");
    for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
  }
}

/** The users hide nobody. */
export async function fillHomes(redis: Redis, users: readonly string[], filling: Filling): Promise<void> {
  await fillKeys(redis, users.map(homeKey), filling);
  for (const some of chunked(users, KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const user of some) pipeline.hset(hiddenKey(user), "~state", "complete");
    await pipeline.exec();
  }
}

/** Stores the copies of whom these users follow, as rebuilds of their homes do. */
export async function storeFollows(redis: Redis, all: ReadonlyMap<string, readonly string[]>): Promise<void> {
  for (const some of chunked([...all], KEYS_A_CALL)) {
    const pipeline = redis.pipeline();
    for (const [user, following] of some) {
      const copy = new Map([...new Follows(user, following).fields(), [HIDDEN_STATE, "complete"]]);
      pipeline.hset(followsKeyOfHome(homeKey(user)), copy);
    }
    for (const [error] of (await pipeline.exec()) ?? []) if (error) throw error;
  }
}

/** Number of these drops in the homes of these users together. */
export const countHeld = (
  redis: Redis | Cluster,
  users: readonly string[],
  drops: readonly string[],
): Promise<number> => countMembers(redis, users.map(homeKey), drops);

/** The same for any sorted sets. */
export async function countMembers(
  redis: Redis | Cluster,
  keys: readonly string[],
  drops: readonly string[],
): Promise<number> {
  let count = 0;
  // A pipeline to a cluster may only have keys of one node.
  await mapLimited(keys, KEYS_A_CALL, async (key) => {
    const scores = await redis.zmscore(key, ...drops);
    count += scores.filter((score) => score !== null).length;
  });
  return count;
}

/** Each of these homes holds each of these drops. */
export async function checkHomes(
  redis: Redis | Cluster,
  users: readonly string[],
  drops: readonly string[],
): Promise<void> {
  const count = await countHeld(redis, users, drops);
  check(count === users.length * drops.length, `${count} of ${users.length * drops.length} entries are there`);
}

/** What a reader of pages needs where nobody hides anybody. */
export const NOBODY_HIDDEN = {
  hidden: { held: async () => undefined, lastKnown: (user: string) => new Hidden(user, new Map()) },
  bylinesOf: async () => new Map<string, Byline>(),
  standingBylinesOf: async () => new Map<string, Byline>(),
  followedAmong: async () => new Set<string>(),
  judgesReplies: false,
  standings: { of: () => "active" as const, size: 0, suspended: 0, isLost: false, changes: 0 },
  veiled: { among: async () => new Set<string>() },
};

/** Stores whom these users hide, as the service does. */
export async function storeHidden(redis: Redis, all: ReadonlyMap<string, readonly string[]>): Promise<void> {
  const readHidden = async (user: string) => new Map(all.get(user)?.map((target) => [target, "all"] as const));
  const hidden = createHiddenStore(createScripts(redis), inOnePage(readHidden), NOBODY_ERASED, TTL_MS);
  await mapLimited([...all.keys()], 32, async (user) => {
    await redis.del(hiddenKey(user));
    await hidden.fill(user);
  });
}
