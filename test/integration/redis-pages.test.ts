import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import fc from "fast-check";
import { toToken } from "../../src/contracts/page-request.js";
import { compareEntries, type TimelineEntry } from "../../src/contracts/timelines.js";
import { GetTimelineResponse } from "../../src/gen/avion/timeline.js";
import { DAY } from "../../src/kernel/time.js";
import type { TimelineStore } from "../../src/state/entries/store.redis.js";
import { eventually } from "../support/eventually.js";
import { adaptersOn, openRedis, type RedisBench } from "../support/redis.js";
import { hidesNobody } from "../support/timeline-keys.js";

const KEY = "timeline:home:ada";
let bench: RedisBench;
let store: TimelineStore;

beforeAll(async () => {
  bench = await openRedis();
  store = adaptersOn(bench.scripts, { maxEntries: 100 }).store;
});
afterAll(() => bench.close());
beforeEach(() => bench.raw.flushall());

const id = fc.oneof(
  fc.string({
    unit: fc.constantFrom("a", "b", "~", "é", "～", "\u{1f600}", "\u0000", "\u007f"),
    minLength: 1,
    maxLength: 3,
  }),
  fc.constantFrom("~floo", "~floor2", "zz"),
);
const entry = fc.record({ score: fc.integer({ min: 1, max: 5 }), drop: id });
const entries = fc.uniqueArray(entry, { selector: ({ drop }) => drop, maxLength: 24 });
/** A position of its own, also before and after everything, and between the ids of one ms. */
const free = fc.record({ score: fc.integer({ min: 0, max: 6 }), drop: fc.oneof(id, fc.constant("")) });

async function fill(held: readonly TimelineEntry[], floor: number | undefined): Promise<void> {
  await bench.raw.del(KEY);
  await hidesNobody(bench.raw, KEY);
  const flat = [...held, ...(floor === undefined ? [] : [{ score: floor, drop: "~floor" }])].flatMap(
    ({ score, drop }) => [score, drop],
  );
  if (flat.length > 0) await bench.raw.zadd(KEY, ...flat);
}

function model(
  held: readonly TimelineEntry[],
  direction: "older" | "newer",
  from: TimelineEntry | undefined,
  count: number,
): TimelineEntry[] {
  const sign = direction === "older" ? -1 : 1;
  return held
    .filter((one) => from === undefined || sign * compareEntries(one, from) > 0)
    .sort((a, b) => sign * compareEntries(a, b))
    .slice(0, count);
}

// Invariant 6.
test("a page equals the model's: any set, any position, ties by bytes, both directions, wherever the floor lies", async () => {
  await fc.assert(
    fc.asyncProperty(
      entries,
      fc.option(fc.integer({ min: -3, max: 6 }), { nil: undefined }),
      fc.array(
        fc.record({ pick: fc.nat(), free: fc.option(free, { nil: undefined }), count: fc.integer({ min: 1, max: 9 }) }),
        { minLength: 6, maxLength: 6 },
      ),
      async (held, floor, asked) => {
        await fill(held, floor);
        for (const { pick, free: elsewhere, count } of asked) {
          // A held drop only at its own time: the same id at another time is not a place anybody was shown.
          const from =
            elsewhere && held.some(({ drop }) => drop === elsewhere.drop)
              ? undefined
              : (elsewhere ?? held[pick % (held.length + 1)]);
          for (const direction of ["older", "newer"] as const) {
            const page = await store.read({ key: KEY, direction, from, count });
            expect(page).toEqual({
              floor: floor === undefined || floor < 0 ? undefined : floor,
              entries: model(held, direction, from, count),
              areAlive: false,
            });
          }
        }
      },
    ),
    { numRuns: 150 },
  );
});

// Invariant 4.
test("an encoded page is the model's, and is answered where it is complete and nothing of it is hidden", async () => {
  const tombstones = fc.record({
    floor: fc.constantFrom(undefined, -1, 0, 0, 0),
    dead: fc.array(id, { maxLength: 3 }),
  });
  await fc.assert(
    fc.asyncProperty(
      entries,
      fc.integer({ min: -1, max: 5 }),
      tombstones,
      fc.record({ from: fc.option(free, { nil: undefined }), drops: fc.integer({ min: 1, max: 5 }), since: fc.nat(4) }),
      async (held, floor, { floor: fencesFloor, dead }, { from, drops, since }) => {
        fc.pre(!held.some(({ drop, score }) => drop === from?.drop && score !== from.score));
        await fill(held, floor);
        await bench.raw.del("timeline:tombstones");
        for (const drop of dead) await bench.raw.zadd("timeline:tombstones", 1, drop);
        if (fencesFloor !== undefined) await bench.raw.zadd("timeline:tombstones", fencesFloor, "~floor");
        const near = model(held, "older", from, drops + 1);
        const query = { key: KEY, direction: "older", from, count: drops + 1, page: { drops, since } } as const;
        const read = await store.read(query);
        const areAlive = (fencesFloor ?? -1) === 0 && !near.some(({ drop }) => dead.includes(drop));
        const isComplete = near.length > drops ? near.every(({ score }) => score > floor || floor === 0) : floor === 0;
        const isWhole = areAlive && floor >= 0 && isComplete && near.every(({ score }) => score >= since);
        if (!isWhole || near.length === 0) {
          expect([read.floor, read.entries]).toEqual([floor < 0 ? undefined : floor, near]);
          expect(read.page).toBeUndefined();
          if (read.areAlive) expect(areAlive).toBe(true);
          return;
        }
        const shown = near.slice(0, drops);
        const [newest, oldest] = [shown[0], shown.at(-1)] as [TimelineEntry, TimelineEntry];
        expect(GetTimelineResponse.decode(read.page as Buffer)).toEqual({
          drop_ids: shown.map(({ drop }) => drop),
          has_more: near.length > drops,
          next_max_id: toToken(oldest),
          prev_min_id: toToken(newest),
          degraded: false,
          items: shown.map(({ score, drop }) => ({
            ...{ drop_id: drop, created_at: score },
            ...{ repost_of: "", reposted_by: [] },
          })),
        });
      },
    ),
    { numRuns: 300 },
  );
});

test("ids of up to 128 bytes stand in an encoded page", async () => {
  const held = [1, 126, 127, 128].map((length) => ({ score: length, drop: "x".repeat(length) }));
  await fill(held, 0);
  await bench.raw.zadd("timeline:tombstones", 0, "~floor");
  for (const drops of [1, 2, 3, 4]) {
    const page = { drops, since: 0 };
    const read = await store.read({ key: KEY, direction: "older", from: undefined, count: drops + 1, page });
    const expected = held.toReversed().slice(0, drops);
    const { drop_ids, items, prev_min_id, next_max_id } = GetTimelineResponse.decode(read.page as Buffer);
    expect(drop_ids).toEqual(expected.map(({ drop }) => drop));
    expect(items.map(({ drop_id, created_at }) => ({ drop: drop_id, score: created_at }))).toEqual(expected);
    expect([prev_min_id, next_max_id]).toEqual(
      [expected[0], expected.at(-1)].map((one) => toToken(one as TimelineEntry)),
    );
  }
});

// Invariant 6.
test("turning pages in either direction shows every entry exactly once, all in one ms", async () => {
  const held = Array.from({ length: 60 }, (_, index) => ({ score: 7, drop: `${index % 2 ? "é" : "e"}${index}` }));
  await fill(held, 0);
  for (const direction of ["older", "newer"] as const) {
    const seen: TimelineEntry[] = [];
    for (let from: TimelineEntry | undefined; ; from = seen.at(-1)) {
      const { entries: page } = await store.read({ key: KEY, direction, from, count: 7 });
      if (page.length === 0) break;
      seen.push(...page);
    }
    expect(seen).toEqual(model(held, direction, undefined, 100));
  }
});

test("an empty key is an empty page that must be rebuilt", async () => {
  expect(await store.read({ key: KEY, direction: "older", from: undefined, count: 3 })).toEqual({
    floor: undefined,
    entries: [],
    areAlive: false,
  });
  await fill([], 0);
  expect(await store.read({ key: KEY, direction: "newer", from: { score: 1, drop: "x" }, count: 3 })).toEqual({
    floor: 0,
    entries: [],
    areAlive: false,
  });
});

test("a read gives a home timeline its time to live, and leaves the shared ones alone", async () => {
  await fill([{ score: 1, drop: "a" }], 0);
  await bench.raw.zadd("timeline:local", 1, "a", 0, "~floor");
  for (const key of [KEY, "timeline:local"]) await store.read({ key, direction: "older", from: undefined, count: 1 });
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(3_000_000);
  expect(await bench.raw.pttl("timeline:local")).toBe(-1);
});

test("a read renews a time to live of which a hundredth is used, and writes nothing before", async () => {
  await fill([{ score: 1, drop: "a" }], 0);
  const first = { key: KEY, direction: "older", from: undefined, count: 1 } as const;
  await store.read(first);
  const whole = await bench.raw.pttl(KEY);
  await bench.raw.pexpire(KEY, Math.round(whole * 0.995));
  await store.read(first);
  expect(await bench.raw.pttl(KEY)).toBeLessThanOrEqual(whole * 0.995);
  await bench.raw.pexpire(KEY, Math.round(whole * 0.985));
  await store.read(first);
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(whole * 0.995);
});

// Invariant 4.
test("a home whose last read gave it a longer time to live than reads give now must be rebuilt", async () => {
  await fill([{ score: 1, drop: "a" }], 0);
  const first = { key: KEY, direction: "older", from: undefined, count: 1 } as const;
  await store.read(first);
  const whole = await bench.raw.pttl(KEY);
  await bench.raw.pexpire(KEY, Math.round(whole * 1.005));
  expect((await store.read(first)).floor).toBe(0);
  // It may have been read a moment ago, or long before tombstones were forgotten.
  await bench.raw.pexpire(KEY, whole + 30 * DAY);
  expect((await store.read(first)).floor).toBeUndefined();
  expect(await bench.raw.pttl(KEY)).toBeLessThan(whole * 1.005);
});

// Invariant 4.
test("a read shares no call to Redis that began before it", async () => {
  await fill(
    [
      { score: 1, drop: "a" },
      { score: 2, drop: "b" },
    ],
    0,
  );
  let answered = 0;
  let go: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (go = resolve));
  const run: typeof bench.scripts.run = async (...of) => {
    const reply = await bench.scripts.run(...of);
    answered++;
    await held;
    return reply;
  };
  const slow = adaptersOn({ ...bench.scripts, run }, { maxEntries: 100 }).store;
  const read = async (): Promise<string[]> => {
    const { entries } = await slow.read({ key: KEY, direction: "older", from: undefined, count: 5 });
    return entries.map(({ drop }) => drop);
  };
  const before = read();
  await eventually(() => answered === 1, "the first read has its answer");
  await bench.raw.zrem(KEY, "b");
  const after = [read(), read(), read()];
  go();
  expect(await before).toEqual(["b", "a"]);
  expect(await Promise.all(after)).toEqual([["a"], ["a"], ["a"]]);
  expect(answered).toBe(2);
});

test("pages asked for in one turn share calls of at most 32; a key that is no timeline is read as an empty one", async () => {
  const keys = Array.from({ length: 40 }, (_, n) => `timeline:home:reader-${n}`);
  for (const [n, key] of keys.entries()) await bench.raw.zadd(key, n, `drop-${n}`, 0, "~floor");
  await bench.raw.set(keys[7] as string, "no timeline");
  const calls: number[] = [];
  const run: typeof bench.scripts.run = (name, asked, args) => {
    calls.push((args.length - 4) / 10);
    return bench.scripts.run(name, asked, args);
  };
  const counted = adaptersOn({ ...bench.scripts, run }, { maxEntries: 100 }).store;
  const read = async (key: string): Promise<string> => {
    const { entries } = await counted.read({ key, direction: "older", from: undefined, count: 3 });
    return entries.map(({ drop }) => drop).join();
  };
  const pages = await Promise.all([...keys, ...keys].map(read));
  const expected = keys.map((_, n) => (n === 7 ? "" : `drop-${n}`));
  expect(pages).toEqual([...expected, ...expected]);
  expect(calls).toEqual([32, 8]);
});

test("the creation time of a drop is what the timeline holds, else what was remembered at its deletion", async () => {
  const { writer } = adaptersOn(bench.scripts, { maxEntries: 100 });
  await fill([{ score: 42, drop: "d 1" }], 0);
  expect(await store.createdAt(KEY, "d 1")).toBe(42);
  await writer.rememberCreations(new Map([["d 1", "ada"]]));
  await bench.raw.zrem(KEY, "d 1");
  expect(await store.createdAt(KEY, "d 1")).toBe(42);
  expect(await store.createdAt(KEY, "unknown")).toBeUndefined();
  await writer.rememberCreations(new Map([["d 1", "ada"]]));
  expect(await store.createdAt(KEY, "d 1")).toBe(42);
});
