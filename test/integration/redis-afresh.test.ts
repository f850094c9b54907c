import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { lua } from "../support/lua.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { held } from "../support/timeline-keys.js";

const KEY = "timeline:home:ada";
let bench: RedisBench;

beforeAll(async () => {
  bench = await openRedis();
});
afterAll(() => bench.close());

const begin = (mark: number, ttl: number, afresh = "") =>
  bench.scripts.run(lua("begin-rebuild"), [KEY], [mark, ttl, afresh]);

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
  await bench.raw.del(KEY);
  await bench.raw.zadd(KEY, 0, "~floor");
  await bench.raw.pexpire(KEY, 30_000);
  await begin(-8, 60_000, "1");
  expect(await bench.raw.pttl(KEY)).toBeLessThanOrEqual(30_000);
  await bench.raw.del(KEY);
  expect(await begin(-9, 60_000, "1")).toEqual([]);
  expect(await bench.raw.pttl(KEY)).toBeGreaterThan(50_000);
});
