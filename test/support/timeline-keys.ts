import type { Redis } from "ioredis";

/** The content of a sorted set: drops with their scores, newest first, and the floor that is no drop. */
export type Held = { readonly entries: readonly Entry[]; readonly floor: number | undefined };

/** A drop and its score. */
export type Entry = readonly [dropId: string, score: number];

const FLOOR = "~floor";

/** An id as it stands in a key: plain where it is harmless, otherwise `=` and base64url. */
export function inKey(id: string): string {
  return /^[A-Za-z0-9_-]{1,64}$/.test(id) ? id : `=${Buffer.from(id).toString("base64url")}`;
}

/** The key of a user's home timeline. */
export function homeKey(user: string): string {
  return `timeline:home:${inKey(user)}`;
}

/** Says that the users of these homes hide nobody, as the first rebuild of a home does. */
export async function hidesNobody(redis: Redis, ...homes: readonly string[]): Promise<void> {
  for (const home of homes) await redis.hset(`timeline:x:hidden:{${home}}`, "~state", "complete");
}

/** Reads a timeline's key whole. */
export async function held(redis: Redis, key: string): Promise<Held> {
  return parse(await redis.zrevrange(key, 0, -1, "WITHSCORES"));
}

/** Reads many timelines at once. */
export async function heldBy(redis: Redis, keys: readonly string[]): Promise<Map<string, Held>> {
  const pipeline = redis.pipeline();
  for (const key of keys) pipeline.zrevrange(key, 0, -1, "WITHSCORES");
  const replies = (await pipeline.exec()) ?? [];
  return new Map(
    keys.map((key, position) => {
      const [error, flat] = replies[position] ?? [];
      if (error) throw error;
      return [key, parse(flat as string[])];
    }),
  );
}

function parse(flat: readonly string[]): Held {
  const entries: Entry[] = [];
  let floor: number | undefined;
  for (let at = 0; at < flat.length; at += 2) {
    const member = flat[at] as string;
    const score = Number(flat[at + 1]);
    if (member === FLOOR) floor = score;
    else entries.push([member, score]);
  }
  return { entries, floor };
}

/** Makes keys those of another type: texts, or a list where they hold a text. A key need not be there. */
export async function changeType(redis: Redis, keys: readonly string[]): Promise<void> {
  for (const key of keys) {
    if ((await redis.type(key)) === "string") await redis.multi().del(key).rpush(key, "of another type").exec();
    else await redis.set(key, "of another type");
  }
}
