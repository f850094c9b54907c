import { expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const bench = redisOfFile();

const KEY = "timeline:home:ada";
const LATER = 32_503_680_000_000;

interface Add {
  readonly keys?: readonly string[];
  readonly packed?: string;
  readonly deadline?: number;
  readonly cap?: number;
  readonly low?: number;
  readonly ttl?: number;
  readonly active?: boolean;
}

function add(entries: readonly (readonly [id: string, score: number])[], how: Add = {}): Promise<unknown> {
  const { deadline = LATER, cap = 1_000, low = 950, ttl = 0, active = false, packed } = how;
  const flat = entries.flatMap(([id, score]) => [score, id, "eve"]);
  const [prefix, rest] = packed === undefined ? ["", (how.keys ?? [KEY]).join(",")] : ["timeline:home:", packed];
  return bench.scripts.run(
    lua("add-entries"),
    [],
    [...[deadline, cap, low, ttl, active ? "1" : "0", "homes", prefix], ...[rest, entries.length, ...flat]],
  );
}

const plant = (floor: number, key = KEY) => bench.raw.zadd(key, floor, "~floor");
const codeOf = (error: unknown) => (error instanceof AppError ? error.code : "none");
const failure = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => "done",
    (error: Error) => `${codeOf(error)}: ${error.message}`,
  );

test("add: the cap itself fits; one more trims to 95 %, and the floor rises to the last one cut off", async () => {
  await plant(0);
  await add(
    Array.from({ length: 20 }, (_, index) => [`d${index + 10}`, index + 1]),
    { cap: 20, low: 19 },
  );
  expect(await held(bench.raw, KEY)).toMatchObject({ floor: 0, entries: { length: 20 } });
  await add([["new", 99]], { cap: 20, low: 19 });
  const trimmed = await held(bench.raw, KEY);
  expect(trimmed.entries.map(([, score]) => score)).toEqual([
    99,
    ...Array.from({ length: 18 }, (_, index) => 20 - index),
  ]);
  expect(trimmed.floor).toBe(2);
});

test("add: many at once are trimmed at once, a floor never falls, and a cut at time 0 makes it 1", async () => {
  await plant(0);
  await add(
    [
      ["z0", 0],
      ["z1", 0],
      ["a", 5],
      ["b", 6],
    ],
    { cap: 2, low: 2 },
  );
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 1,
    entries: [
      ["b", 6],
      ["a", 5],
    ],
  });
  await add(
    [
      ["c", 7],
      ["d", 8],
    ],
    { cap: 2, low: 2 },
  );
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 6,
    entries: [
      ["d", 8],
      ["c", 7],
    ],
  });
});

test("add: without a floor the cap holds all the same, and no floor is made up", async () => {
  await add(
    [
      ["a", 1],
      ["b", 2],
      ["c", 3],
    ],
    { cap: 2, low: 1 },
  );
  expect(await held(bench.raw, KEY)).toEqual({ floor: undefined, entries: [["c", 3]] });
});

test("add: what is not above the floor is left to those who read past it", async () => {
  await plant(100);
  expect(
    await add([
      ["below", 99],
      ["at", 100],
      ["above", 101],
    ]),
  ).toBe(1);
  expect((await held(bench.raw, KEY)).entries).toEqual([["above", 101]]);
});

test("add: a rebuild under way takes everything, and loses its mark when it is trimmed", async () => {
  await plant(-5);
  await add([
    ["old", 0],
    ["a", 1],
  ]);
  expect(await held(bench.raw, KEY)).toEqual({
    floor: -5,
    entries: [
      ["a", 1],
      ["old", 0],
    ],
  });
  await add([["b", 2]], { cap: 2, low: 1 });
  expect(await held(bench.raw, KEY)).toEqual({ floor: undefined, entries: [["b", 2]] });
});

test("add: `active` writes only where a floor of any kind stands", async () => {
  await plant(0, "timeline:home:read");
  await plant(-1, "timeline:home:being-read");
  expect(await add([["a", 1]], { packed: "read,being-read,unread", active: true })).toBe(2);
  expect(await bench.raw.exists("timeline:home:unread")).toBe(0);
});

test("add: a key gets its time to live when it is made, and no other write shortens or extends it", async () => {
  await add([["a", 1]], { ttl: 60_000 });
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(50_000);
  await add([["b", 2]], { ttl: 9_000_000 });
  expect(await bench.raw.pttl(KEY)).toBeLessThanOrEqual(60_000);
  await add([["a", 1]], { keys: ["timeline:local"], ttl: 0 });
  expect(await bench.raw.pttl("timeline:local")).toBe(-1);
});

// Invariant 2.
test("add and remove: after the deadline by the server's clock nothing is written, and it counts as an outage", async () => {
  const [seconds] = await bench.raw.time();
  expect(await failure(add([["a", 1]], { deadline: Number(seconds) * 1_000 - 1 }))).toMatch(/^unavailable: .*LATE/);
  expect(await bench.raw.exists(KEY)).toBe(0);
  await add([["a", 1]], { deadline: Number(seconds) * 1_000 + 60_000 });
  expect(await failure(bench.scripts.run(lua("remove-entries"), [], [1, "", KEY, 1, "a"]))).toMatch(
    /^unavailable: .*LATE/,
  );
  expect((await held(bench.raw, KEY)).entries).toEqual([["a", 1]]);
});

const begin = (mark: number, ttl = 0, afresh = "") =>
  bench.scripts.run(lua("begin-rebuild"), [KEY], [mark, ttl, afresh]);
const finish = (
  mark: number,
  how: {
    readonly floor?: number;
    readonly cap?: number;
    readonly gone?: readonly string[];
    readonly entries?: readonly (readonly [string, number])[];
    readonly until?: number;
  } = {},
) =>
  bench.scripts.run(
    lua("finish-rebuild"),
    [KEY, "timeline:x:none", "timeline:x:none either"],
    [
      how.until ?? LATER,
      mark,
      how.floor ?? 0,
      how.cap ?? 100,
      0,
      0,
      how.gone?.length ?? 0,
      ...(how.gone ?? []),
      ...(how.entries ?? []).flatMap(([id, score]) => [score, id]),
    ],
  );

test("begin rebuild: plants the mark, hands out what was held, and replaces the mark of who began before", async () => {
  expect(await begin(-7, 60_000)).toEqual([]);
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(50_000);
  await add([
    ["a", 1],
    ["b", 2],
  ]);
  expect(await begin(-8)).toEqual(["a", "b"]);
  expect((await held(bench.raw, KEY)).floor).toBe(-8);
  expect(await finish(-7)).toBe(0);
  expect(await finish(-8)).toBe(1);
});

test("begin rebuild: afresh, a complete timeline is marked too, and what is left of its time to live stays", async () => {
  await bench.raw.zadd(KEY, 50, "~floor", 60, "a", 70, "b");
  const { entries } = await held(bench.raw, KEY);
  await bench.raw.pexpire(KEY, 30_000);
  expect(await begin(-7, 60_000)).toBeNull();
  expect(await begin(-7, 60_000, "1")).toEqual(["a", "b"]);
  expect(await held(bench.raw, KEY)).toEqual({ floor: -7, entries });
  expect(await bench.raw.pttl(KEY)).toBeLessThanOrEqual(30_000);
});

test("begin rebuild: a timeline that holds its floor alone keeps its time to live too; a new one gets one", async () => {
  await bench.raw.zadd(KEY, 0, "~floor");
  await bench.raw.pexpire(KEY, 30_000);
  await begin(-8, 60_000, "1");
  expect(await bench.raw.pttl(KEY)).toBeLessThanOrEqual(30_000);
  await bench.raw.del(KEY);
  expect(await begin(-9, 60_000, "1")).toEqual([]);
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(50_000);
});

test("finish rebuild: after the deadline by the server's clock nothing is written, and it counts as an outage", async () => {
  await begin(-7);
  const late = finish(-7, { until: Date.now() - 1, entries: [["deleted meanwhile", 1]] });
  await expect(late).rejects.toMatchObject({ code: "unavailable", message: expect.stringContaining("LATE") });
  expect(await held(bench.raw, KEY)).toEqual({ floor: -7, entries: [] });
});

// Invariant 2.
test.each(["mark-tombstones", "record-server"] as const)(
  "%s: what vouches is refused after its deadline",
  async (script) => {
    const late = bench.scripts.run(lua(script), [KEY], [Date.now() - 1, "1", "1"]);
    await expect(late).rejects.toMatchObject({ code: "unavailable", message: expect.stringContaining("LATE") });
    expect(await bench.raw.exists(KEY)).toBe(0);
  },
);

test("finish rebuild: a floor clears what is not above it; past the cap the floor rises further", async () => {
  await begin(-7);
  await add([
    ["under", 5],
    ["at", 10],
    ["meanwhile", 40],
  ]);
  expect(
    await finish(-7, {
      floor: 10,
      cap: 3,
      entries: [
        ["x", 20],
        ["y", 30],
      ],
    }),
  ).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 10,
    entries: [
      ["meanwhile", 40],
      ["y", 30],
      ["x", 20],
    ],
  });
  await bench.raw.del(KEY);
  await begin(-8);
  await add([["meanwhile", 40]]);
  expect(
    await finish(-8, {
      floor: 10,
      cap: 2,
      entries: [
        ["x", 20],
        ["y", 30],
      ],
    }),
  ).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 20,
    entries: [
      ["meanwhile", 40],
      ["y", 30],
    ],
  });
});

test("the largest mark survives the way through a score exactly", async () => {
  const mark = -(2 ** 47 - 1);
  await begin(mark);
  expect(await finish(mark)).toBe(1);
});
