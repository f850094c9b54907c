import { afterAll, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { openRedis, type RedisBench } from "../support/core-redis.js";
import { held } from "../support/timeline-keys.js";

let bench: RedisBench;
beforeAll(async () => {
  bench = await openRedis();
});
afterAll(() => bench.close());
beforeEach(() => bench.raw.flushall());

const KEY = "timeline:home:ada";
const STAGED = `timeline:x:staged:{${KEY}}:-7`;
const LATER = Date.now() + 3_600_000;
const begin = (mark: number) => bench.scripts.run("begin-rebuild", [KEY], [mark, 0, ""]);
const stage = (mark: number, until: number, ...members: readonly (string | number)[]) =>
  bench.scripts.run("stage-rebuild", [KEY, STAGED], [until, mark, 60_000, ...members]);
const finish = (staged: number) =>
  bench.scripts.run("finish-rebuild", [KEY, STAGED], [LATER, -7, 0, 100, staged, 7, "+b"]);

test("stage rebuild: what is put aside comes in with the end, and is gone afterwards", async () => {
  await bench.raw.zadd(KEY, 1, "old");
  await begin(-7);
  expect(await stage(-7, LATER, -1, "-old", 5, "+a")).toBe(2);
  expect(await stage(-7, LATER, 6, "+old")).toBe(3);
  expect(await held(bench.raw, KEY)).toEqual({ floor: -7, entries: [["old", 1]] });
  expect(await finish(3)).toBe(1);
  expect(await held(bench.raw, KEY)).toEqual({
    floor: 0,
    entries: [
      ["b", 7],
      ["old", 6],
      ["a", 5],
    ],
  });
  expect(await bench.raw.exists(STAGED)).toBe(0);
});

test("stage rebuild: nothing is put aside after the deadline, nor where the mark is gone", async () => {
  await begin(-7);
  await expect(stage(-7, 1, 5, "+a")).rejects.toMatchObject({ code: "unavailable" });
  expect(await stage(-7, LATER, 5, "+a")).toBe(1);
  await begin(-8);
  expect(await stage(-7, LATER, 6, "+b")).toBe(0);
  expect(await bench.raw.exists(STAGED)).toBe(0);
});

test("finish rebuild: where what was put aside is lost nothing is written", async () => {
  await begin(-7);
  expect(await stage(-7, LATER, 5, "+a")).toBe(1);
  await bench.raw.del(STAGED);
  expect(await finish(1)).toBe(0);
  expect(await held(bench.raw, KEY)).toEqual({ floor: -7, entries: [] });
});
