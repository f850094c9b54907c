import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { compareEntries, type TimelineEntry } from "../../src/contracts/timelines.js";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import type { PullRegistry } from "../../src/state/big-authors/pulled.js";
import { createPulls } from "../../src/state/big-authors/pulls.redis.js";
import type { TimelineStore } from "../../src/state/entries/store.redis.js";
import { becomes } from "../support/eventually.js";
import { openRegistry } from "../support/pulled.js";
import { adaptersOn, NOBODY_ERASED, openRedis, type RedisBench } from "../support/redis.js";
import { hidesNobody } from "../support/timeline-keys.js";

const HOME = "timeline:home:ada";
const PULLS = "timeline:x:pulls:{timeline:home:ada}";
const AUTHORS = ["bob", "=Y2Fyb2wu"];
const KEYS = [HOME, ...AUTHORS.map((author) => `timeline:author:${author}`)];
const REGISTRY: PullRegistry = new Map(
  ["bob", "carol.", "dan"].map((author) => [author, { state: "pulled", by: "hand", since: 0 }]),
);
const PULLED = { copy: () => REGISTRY, refresh: async () => REGISTRY };

let redis: RedisBench;
const stores: [name: string, store: TimelineStore][] = [];

beforeAll(async () => {
  redis = await openRedis();
  for (const isCluster of [false, true])
    stores.push([
      isCluster ? "a cluster" : "one server",
      adaptersOn({ ...redis.scripts, isCluster }, { maxEntries: 100 }, PULLED).store,
    ]);
});
afterAll(() => redis.close());
beforeEach(async () => {
  await redis.raw.flushall();
  await redis.raw.hset("timeline:x:pulled", "bob", "pulled:hand:0", "=Y2Fyb2wu", "promoting:hand:0", "~version", 2);
  await hidesNobody(redis.raw, HOME);
});

const id = fc.string({ unit: fc.constantFrom("a", "~", "é", "\u{1f600}"), minLength: 1, maxLength: 3 });
const drop = fc.record({
  score: fc.integer({ min: 1, max: 6 }),
  drop: id,
  /** The timelines that hold it: one, or several after an author has changed over. */
  held: fc.subarray([0, 1, 2], { minLength: 1 }),
});
type Held = TimelineEntry & { readonly held: readonly number[] };
const drops = fc.uniqueArray(drop, { selector: (one) => one.drop, maxLength: 40 });
const floors = fc.tuple(...KEYS.map(() => fc.option(fc.integer({ min: -2, max: 4 }), { nil: undefined, freq: 20 })));
const position = fc.option(fc.record({ score: fc.integer({ min: 0, max: 7 }), drop: fc.oneof(id, fc.constant("")) }), {
  nil: undefined,
});

async function place(all: readonly Held[], lows: readonly (number | undefined)[], pulls: readonly string[]) {
  const pipeline = redis.raw.pipeline().del(PULLS, ...KEYS);
  for (const [at, key] of KEYS.entries()) {
    for (const { score, drop: member } of all.filter(({ held }) => held.includes(at)))
      pipeline.zadd(key, score, member);
    const floor = lows[at];
    if (floor !== undefined) pipeline.zadd(key, floor, "~floor");
  }
  if (pulls.length > 0) pipeline.sadd(PULLS, ...pulls);
  await pipeline.exec();
}

const stands = (floor: number | undefined): floor is number => floor !== undefined && floor >= 0;

// Invariant 6.
test("a merged read equals that of one timeline that holds everything, each drop once, in both directions", async () => {
  await fc.assert(
    fc.asyncProperty(
      drops,
      floors,
      fc.array(fc.record({ from: position, pick: fc.nat(), count: fc.integer({ min: 1, max: 12 }) }), { minLength: 4 }),
      async (all, lows, asked) => {
        await place(all, lows, ["~complete", ...AUTHORS]);
        const incomplete = KEYS.filter((_, at) => !stands(lows[at]));
        for (const { from: free, pick, count } of asked) {
          const from = free && all.some((one) => one.drop === free.drop) ? all[pick % all.length] : free;
          for (const direction of ["older", "newer"] as const) {
            const sign = direction === "older" ? -1 : 1;
            const entries = all
              .filter((one) => from === undefined || sign * compareEntries(one, from) > 0)
              .sort((a, b) => sign * compareEntries(a, b))
              .slice(0, count)
              .map(({ score, drop: name }) => ({ score, drop: name }));
            for (const [name, store] of stores) {
              const {
                merged,
                incomplete: lacking,
                ...stored
              } = await store.read({ key: HOME, direction, from, count });
              const floor = incomplete.length === 0 ? Math.max(...(lows as number[])) : undefined;
              expect({ name, ...stored }).toEqual({ name, floor, entries, areAlive: false });
              expect(lacking?.arePullsKnown).toBe(incomplete.length > 0 ? true : undefined);
              expect(new Set(merged)).toEqual(new Set(KEYS.slice(1)));
              expect(new Set(lacking?.keys)).toEqual(new Set(incomplete));
            }
          }
        }
      },
    ),
    { numRuns: 60 },
  );
});

// Invariant 6.
test("an encoded page is that of one timeline that holds everything, and only where all of it is complete", async () => {
  const [, store] = stores[0] as (typeof stores)[number];
  await fc.assert(
    fc.asyncProperty(drops, floors, position, fc.integer({ min: 1, max: 8 }), async (all, lows, from, size) => {
      await place(all, lows, ["~complete", ...AUTHORS]);
      await redis.raw.zadd("timeline:tombstones", 0, "~floor");
      const page = { drops: size, since: 0 };
      const stored = await store.read({ key: HOME, direction: "older", from, count: size + 1, page });
      const older = all.filter((one) => from === undefined || compareEntries(one, from) < 0);
      const wanted = older.sort((a, b) => compareEntries(b, a)).map((one) => one.drop);
      const floor = Math.max(...lows.map((low) => low ?? -1));
      const oldest = older[Math.min(size, older.length - 1)];
      const isWhole = lows.every(stands) && oldest && (floor === 0 || (older.length > size && oldest.score > floor));
      expect(stored.page !== undefined).toBe(Boolean(isWhole));
      if (!stored.page) return;
      const response = GetTimelineResponse.decode(stored.page);
      expect(response.drop_ids).toEqual(wanted.slice(0, size));
      expect(response.has_more).toBe(wanted.length > size);
    }),
    { numRuns: 150 },
  );
});

// Invariant 5.
test("a set that is not known is said to be unknown, and the home is answered alone", async () => {
  const all = [
    { score: 1, drop: "own", held: [0] },
    { score: 2, drop: "pulled", held: [1] },
  ];
  for (const pulls of [[], ["~filling:x"]]) {
    for (const [name, store] of stores) {
      await place(all, [0, 0, 0], pulls);
      const stored = await store.read({ key: HOME, direction: "older", from: undefined, count: 9 });
      expect({ name, ...stored }).toEqual({
        ...{ name, floor: undefined, entries: [{ score: 1, drop: "own" }], areAlive: false },
        incomplete: { arePullsKnown: false, keys: [] },
      });
    }
  }
});

// Invariant 5.
test("the timeline of a tiered author is merged where it exists, whatever its floor, and reads do not renew it", async () => {
  const tiered: PullRegistry = new Map([["bob", { state: "tiered", by: "hand", since: 0 }]]);
  await redis.raw.del("timeline:x:pulled");
  await redis.raw.hset("timeline:x:pulled", "bob", "tiered:hand:0", "~version", 3);
  const all = [
    { score: 3, drop: "under way", held: [1] },
    { score: 2, drop: "own", held: [0] },
  ];
  for (const isCluster of [false, true]) {
    const pulled = { copy: () => tiered, refresh: async () => tiered };
    const { store } = adaptersOn({ ...redis.scripts, isCluster }, { maxEntries: 100 }, pulled);
    const read = async () => {
      const { floor, entries } = await store.read({ key: HOME, direction: "older", from: undefined, count: 9 });
      return [floor, ...entries.map((entry) => entry.drop)];
    };
    for (const floor of [undefined, -1, 7]) {
      await place(all, [0, floor, undefined], ["~complete", "bob"]);
      expect(await read()).toEqual([0, "under way", "own"]);
      expect(await redis.raw.pttl("timeline:author:bob")).toBe(-1);
    }
    await redis.raw.del("timeline:author:bob");
    expect(await read()).toEqual([0, "own"]);
  }
});

test("authors who have left the registry are not merged, nor those an operator keeps pushed", async () => {
  await place([{ score: 1, drop: "stale", held: [1] }], [0, 0, 0], ["~complete", "bob", "eve"]);
  await redis.raw.hset("timeline:x:pulled", "bob", "pushed:hand:0");
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  await registry.refresh();
  const { store } = adaptersOn(redis.scripts, { maxEntries: 100 }, registry);
  expect(await store.read({ key: HOME, direction: "older", from: undefined, count: 9 })).toEqual({
    ...{ floor: 0, entries: [], areAlive: false },
  });
});

// Invariant 5.
test("while nobody is pulled nothing is merged; a copy that fills up during a read counts", async () => {
  await place([{ score: 1, drop: "pulled", held: [1] }], [0, 0, 0], ["~complete", "bob"]);
  let copies: PullRegistry[] = [];
  const pulled = { copy: () => copies.shift(), refresh: async () => REGISTRY };
  const { store } = adaptersOn(redis.scripts, { maxEntries: 100 }, pulled);
  const read = async () => (await store.read({ key: HOME, direction: "older", from: undefined, count: 9 })).entries;
  copies = [new Map(), new Map()];
  expect(await read()).toEqual([]);
  copies = [new Map(), REGISTRY, REGISTRY];
  expect(await read()).toEqual([{ score: 1, drop: "pulled" }]);
});

test("a read renews the set and the timelines it merges, and vouches for none that nobody has read for a week", async () => {
  const { store } = adaptersOn(redis.scripts, { maxEntries: 100 }, PULLED);
  await place([], [0, 0, 0], ["~complete", ...AUTHORS]);
  const days = Number(STORED_TIMELINES_VARIABLES.ttlMs.default) / 86_400_000;
  for (const key of [PULLS, ...KEYS.slice(0, 2)]) await redis.raw.expire(key, (days - 1) * 86_400);
  await redis.raw.expire(KEYS[2] as string, 60);
  const { incomplete } = await store.read({ key: HOME, direction: "older", from: undefined, count: 9 });
  expect(incomplete?.keys).toEqual([KEYS[2]]);
  // The last one has lost its only member, the floor.
  const left = await Promise.all([PULLS, ...KEYS.slice(0, 2)].map((key) => redis.raw.ttl(key)));
  expect(left.map((seconds) => Math.round(seconds / 86_400))).toEqual([days, days, days]);
});

// Invariant 5.
test("a Redis that refuses writes still answers pages whose times to live are due; a replica does not", async () => {
  const { store } = adaptersOn(redis.scripts, { maxEntries: 100 }, PULLED);
  await place([{ score: 1, drop: "own", held: [0] }], [0, 0, 0], ["~complete", ...AUTHORS]);
  for (const key of [PULLS, ...KEYS]) await redis.raw.expire(key, 28 * 86_400);
  const page = () => store.read({ key: HOME, direction: "older", from: undefined, count: 9 });
  const read = async () => (await page()).entries;
  try {
    await redis.raw.config("SET", "min-replicas-to-write", "1");
    await expect(redis.raw.expire(HOME, 60)).rejects.toThrow("NOREPLICAS");
    expect(await read()).toEqual([{ score: 1, drop: "own" }]);
    await redis.raw.config("SET", "min-replicas-to-write", "0");
    await redis.raw.replicaof("127.0.0.1", "1");
    await expect(read()).rejects.toThrow("READONLY");
    await redis.raw.replicaof("NO", "ONE");
    // Deletions since the last read may be forgotten.
    for (const key of KEYS) await redis.raw.expire(key, 60);
    await redis.raw.config("SET", "min-replicas-to-write", "1");
    const doubted = { entries: [{ score: 1, drop: "own" }], incomplete: { keys: expect.arrayContaining(KEYS) } };
    await becomes(async () => expect(await page()).toMatchObject(doubted));
  } finally {
    await redis.raw.replicaof("NO", "ONE");
    await redis.raw.config("SET", "min-replicas-to-write", "0");
  }
});

// Invariant 5.
test("pulled authors are filled from the followings, unless a change comes between; `afresh` replaces them", async () => {
  const pulls = createPulls(redis.scripts, PULLED, NOBODY_ERASED, 60_000);
  expect(await pulls.following("ada", async () => ["bob", "eve"])).toEqual(["bob", "eve"]);
  const held = async () => (await redis.raw.smembers(PULLS)).sort();
  expect(await held()).toEqual(["bob", "~complete"]);
  await pulls.following("ada", async () => ["carol."]);
  expect(await held()).toEqual(["bob", "~complete"]);
  await pulls.following("ada", async () => ["carol."], true);
  expect(await held()).toEqual(["=Y2Fyb2wu", "~complete"]);
  await redis.raw.del(PULLS);
  let reads = 0;
  const read = async () => {
    // What a follow does while the set is being filled.
    if (reads++ === 0) await redis.raw.del(PULLS);
    return reads === 1 ? ["bob"] : ["bob", "dan"];
  };
  await pulls.fill("ada", read);
  expect({ reads, held: await held() }).toEqual({ reads: 2, held: ["bob", "dan", "~complete"] });
});

// Invariant 5.
test("fills of one set by two processes whose reads overlap each read once", async () => {
  const begun: [number, number] = [0, 0];
  let isDone = false;
  const fill = (process: 0 | 1, mayEnd: () => boolean): Promise<void> =>
    createPulls(redis.scripts, PULLED, NOBODY_ERASED, 60_000).fill("ada", async () => {
      begun[process]++;
      while (!mayEnd()) await new Promise(setImmediate);
      return ["bob", "eve"];
    });
  // One ends its read once the other has begun one, which ends once the first has begun again or is done.
  const first = fill(0, () => begun[1] >= begun[0]).finally(() => {
    isDone = true;
  });
  const second = fill(1, () => isDone || begun[0] > begun[1]);
  await Promise.all([first, second]);
  expect(begun).toEqual([1, 1]);
  expect((await redis.raw.smembers(PULLS)).sort()).toEqual(["bob", "~complete"]);
});

// Invariant 5.
test("a fill that a change has overtaken does not end that of another process which began after the change", async () => {
  const { authors } = adaptersOn(redis.scripts, { maxEntries: 100 }, PULLED);
  const [first, second] = [
    createPulls(redis.scripts, PULLED, NOBODY_ERASED, 60_000),
    createPulls(redis.scripts, PULLED, NOBODY_ERASED, 60_000),
  ];
  let [reads, hasBegun, isDone] = [0, false, false];
  let other: Promise<void> | undefined;
  const beginOther = async (): Promise<void> => {
    await authors.addToPulls(new Map([["dan", ["ada"]]]));
    other = second.fill("ada", async () => {
      hasBegun = true;
      while (reads < 2 && !isDone) await new Promise(setImmediate);
      return ["bob", "dan"];
    });
    while (!hasBegun) await new Promise(setImmediate);
  };
  await first.fill("ada", async () => {
    if (++reads > 1) return ["bob", "dan"];
    await beginOther();
    return ["bob"];
  });
  isDone = true;
  await other;
  expect({ reads, held: (await redis.raw.smembers(PULLS)).sort() }).toEqual({
    reads: 2,
    held: ["bob", "dan", "~complete"],
  });
});
