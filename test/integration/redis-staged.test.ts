import { expect, test } from "@jest/globals";
import { lua } from "../support/lua.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held } from "../support/timeline-keys.js";

const bench = redisOfFile();

const KEY = "timeline:home:ada";
const [ADDS, REMOVALS] = [`timeline:x:staged:{${KEY}}:add`, `timeline:x:staged:{${KEY}}:remove`];
const LATER = Date.now() + 3_600_000;
const begin = (mark: number, ttl = 0, afresh = "") =>
  bench.scripts.run(lua("begin-rebuild"), [KEY], [mark, ttl, afresh]);
const stage = (mark: number, until: number, gone: readonly string[], ...entries: readonly (string | number)[]) =>
  bench.scripts.run(
    lua("stage-rebuild"),
    [KEY, ADDS, REMOVALS],
    [until, mark, 60_000, gone.length, ...gone, ...entries],
  );
const finish = (staged: number) =>
  bench.scripts.run(lua("finish-rebuild"), [KEY, ADDS, REMOVALS], [LATER, -7, 0, 100, staged, 0, 1, "last", 7, "b"]);

test("stage rebuild: what is put aside takes effect with the end, and is gone afterwards", async () => {
  await bench.raw.zadd(KEY, 1, "old", 2, "stale", 3, "last");
  await begin(-7, 60_000);
  await bench.raw.zadd(KEY, 4, "a", 9, "new");
  expect(await stage(-7, LATER, ["old", "stale"])).toBe(2);
  expect(await stage(-7, LATER, [], 5, "a", 6, "old")).toBe(4);
  expect((await held(bench.raw, KEY)).entries.map(([drop]) => drop)).toEqual(["new", "a", "last", "stale", "old"]);
  expect(await finish(4)).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 0,
    entries: [
      ["new", 9],
      ["b", 7],
      ["old", 6],
      ["a", 4],
    ],
  });
  expect(await bench.raw.exists(ADDS, REMOVALS)).toBe(0);
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(50_000);
});

test("stage rebuild: nothing is put aside after the deadline, nor where the mark is gone", async () => {
  await begin(-7);
  await expect(stage(-7, 1, [], 5, "a")).rejects.toMatchObject({ code: "unavailable" });
  expect(await stage(-7, LATER, ["c"], 5, "a")).toBe(2);
  for (const key of [ADDS, REMOVALS]) expect(await bench.raw.pttl(key)).toBeGreaterThan(0);
  await begin(-8);
  expect(await stage(-7, LATER, [], 6, "b")).toBe(0);
  expect(await bench.raw.exists(ADDS, REMOVALS)).toBe(0);
});

test("finish rebuild: where what was put aside is lost nothing is written", async () => {
  await begin(-7);
  expect(await stage(-7, LATER, ["c"], 5, "a")).toBe(2);
  await bench.raw.del(ADDS);
  expect(await finish(2)).toBe(0);
  expect(await held(bench.raw, KEY)).toEqual({ floor: -7, entries: [] });
});

test.each([999, 1_000, 1_001, 4_999])("rebuild: each of %d drops is put aside, added and removed", async (count) => {
  const drops = Array.from({ length: count }, (_, at) => `drop-${at}`);
  const scored = drops.flatMap((drop, at) => [at + 1, drop]);
  const entries = drops.map((drop, at) => [drop, at + 1] as const).toReversed();
  const end = (mark: number, staged: number, gone: readonly string[], added: readonly (string | number)[]) =>
    bench.scripts.run(
      lua("finish-rebuild"),
      [KEY, ADDS, REMOVALS],
      [LATER, mark, 0, 9_999, staged, 0, gone.length, ...gone, ...added],
    );
  await begin(-7);
  expect(await stage(-7, LATER, [], ...scored)).toBe(count);
  expect(await end(-7, count, [], [])).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({ floor: 0, entries });
  await begin(-8, 0, "1");
  expect(await end(-8, 0, drops, [0, "other"])).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({ floor: 0, entries: [["other", 0]] });
  await begin(-9, 0, "1");
  expect(await end(-9, 0, ["other"], scored)).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({ floor: 0, entries });
});
