import type { Redis } from "ioredis";
import { encodeId } from "../../src/kernel/ids.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import type { Publish } from "../../src/platform/nats/publish.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { createErased } from "../../src/state/erased/erased.redis.js";
import { ERASED_KEY } from "../../src/state/keys.js";
import type { NatsBench } from "./nats.js";

/** The record of erased users, as the service has it. */
export const erasedOn = (
  scripts: Scripts,
  { connection, publish }: Pick<NatsBench, "connection"> & { publish: Publish },
) => createErased(scripts, createBucket(connection, publish, "ERASED"));

interface Place {
  readonly key: string;
  /** A field with its value, a member, or a text; undefined: the key itself names the user. */
  readonly within?: string;
  readonly remove: () => Promise<unknown>;
}

async function contentOf(redis: Redis, key: string): Promise<readonly Required<Place>[]> {
  const of = (within: string, remove: Place["remove"]) => ({ key, within, remove });
  switch (await redis.type(key)) {
    case "hash":
      return Object.entries(await redis.hgetall(key)).map(([field, value]) =>
        of(`${field}: ${value}`, () => redis.hdel(key, field)),
      );
    case "set":
      return (await redis.smembers(key)).map((member) => of(member, () => redis.srem(key, member)));
    case "zset":
      return (await redis.zrange(key, "0", "-1")).map((member) => of(member, () => redis.zrem(key, member)));
    case "string":
      return [of((await redis.get(key)) ?? "", () => redis.del(key))];
    default:
      return [];
  }
}

async function placesOf(redis: Redis, texts: readonly string[]): Promise<readonly Place[]> {
  const isNamed = (text: string): boolean => texts.some((one) => text.includes(one));
  const places: Place[] = [];
  for (const key of await redis.keys("*")) {
    if (key === ERASED_KEY) continue;
    if (isNamed(key)) places.push({ key, remove: () => redis.del(key) });
    else places.push(...(await contentOf(redis, key)).filter(({ within }) => isNamed(within)));
  }
  return places;
}

/** Where Redis names a user, but for the record of erased users. */
export const namedIn = async (redis: Redis, user: string): Promise<readonly string[]> =>
  (await placesOf(redis, [user, encodeId(user)])).map(({ key, within = "" }) => `${key} ${within}`).sort();

/** Removes whatever names the user, and these drops, as an erasure does. */
export async function forgetIn(redis: Redis, user: string, drops: readonly string[]): Promise<void> {
  for (const { remove } of await placesOf(redis, [user, encodeId(user)])) await remove();
  for (const key of await redis.keys("timeline:home:*")) if (drops.length > 0) await redis.zrem(key, ...drops);
}
