import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { createFences } from "../../src/consistency/fences/fences.js";
import { silent } from "../../src/kernel/logger.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { readFirstPage } from "../../src/timeline/get-timeline.js";
import { createMostRead, type FirstPage, type MostRead } from "../../src/timeline/most-read.redis.js";
import { startReadAhead } from "../../src/timeline/read-ahead.js";
import { historyOf } from "../support/memory-upstreams.js";
import { type CacheBench, openReader } from "../support/read-cache.js";
import { adaptersOn, openRedis, type RedisBench } from "../support/redis.js";
import { homeKey } from "../support/timeline-keys.js";

const MAX = 100;

let redis: RedisBench;
let scripts: Scripts;
let held: CacheBench;
const closes: (() => Promise<void>)[] = [];

beforeAll(async () => {
  redis = await openRedis();
  const reader = await openReader(redis.broker.url);
  ({ scripts, held } = reader);
  closes.push(() => redis.close(), reader.close);
});
afterAll(async () => {
  for (const close of closes.reverse()) await close();
});
beforeEach(async () => {
  await redis.raw.flushall();
  await redis.raw.zadd("timeline:tombstones", 0, "~floor");
});

const page = (user: string, limit = 3): FirstPage => ({ user, limit });

function note({ note: noteOne }: MostRead, reads: Readonly<Record<string, number>>): void {
  for (const [user, count] of Object.entries(reads)) for (let n = 0; n < count; n++) noteOne(page(user));
}

function openReads() {
  const { store, fenceStore } = adaptersOn(scripts, { maxEntries: MAX, cache: held.cache });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  return (one: FirstPage): Promise<unknown> => readFirstPage({ store, fences }, one);
}

/** Reads ahead until it is done. */
async function readAhead(read: (one: FirstPage) => Promise<unknown>): Promise<void> {
  await new Promise<void>((resolve) => {
    const log = { ...silent, info: () => resolve() };
    const ahead = startReadAhead({ mostRead: createMostRead(scripts), cache: held.cache, read, rate: 1_000, log });
    closes.push(() => ahead.close());
  });
}

test("pages that were read more than once are kept, by minute and reads, of two processes together", async () => {
  const [one, other] = [createMostRead(scripts), createMostRead(redis.scripts)];
  note(one, { ada: 3, bob: 2, cy: 1 });
  one.note(page("ada", 20));
  one.note(page("ada", 20));
  await one.store();
  note(other, { dan: 5, "https://remote.example/users/eve": 4 });
  await other.store();
  const kept = await createMostRead(scripts).list();
  // The minute may have ended between the two.
  const ofOne = kept.filter(({ user }) => ["ada", "bob", "cy"].includes(user));
  expect(ofOne[0]).toEqual(page("ada"));
  expect(new Set(ofOne)).toEqual(new Set([page("ada"), page("bob"), page("ada", 20)]));
  expect(kept.filter((of) => !ofOne.includes(of))).toEqual([page("dan"), page("https://remote.example/users/eve")]);
  note(one, { cy: 1 });
  await one.store();
  expect(await one.list()).toHaveLength(5);
});

test("a thousand pages are kept for a day", async () => {
  const mostRead = createMostRead(scripts);
  for (let n = 0; n < 1_500; n++) note(mostRead, { [`user-${n}`]: n < 500 ? 3 : 2 });
  await mostRead.store();
  const kept = await mostRead.list();
  expect(kept).toHaveLength(1_000);
  expect(kept.slice(0, 500).every(({ user }) => Number(user.slice("user-".length)) < 500)).toBe(true);
  expect(await redis.raw.pttl("timeline:x:most-read")).toBeGreaterThan(23 * 3_600_000);
});

test("what was read most is cached before a reader comes; what must be rebuilt is left to its reader", async () => {
  await redis.raw.zadd(homeKey("ada"), 0, "~floor", 1, "d1", 2, "d2");
  await redis.raw.zadd(homeKey("empty"), 0, "~floor");
  await redis.raw.zadd(homeKey("lost"), 1, "d1");
  const mostRead = createMostRead(scripts);
  note(mostRead, { ada: 4, empty: 3, lost: 2 });
  await mostRead.store();
  const read = openReads();
  await readAhead(read);
  const { hit, miss } = held.cache.events;
  await read(page("ada"));
  // A home without a drop is held as any other.
  expect(await read(page("empty"))).toEqual([]);
  expect({ hit: held.cache.events.hit - hit, miss: held.cache.events.miss - miss }).toEqual({ hit: 2, miss: 0 });
  await expect(read(page("lost"))).rejects.toThrow("must be rebuilt");
  // It is no longer held once a drop arrives.
  await redis.raw.zadd(homeKey("empty"), 3, "d3");
  expect(await read(page("empty"))).not.toEqual([]);
});
