import { afterAll, beforeAll, beforeEach } from "@jest/globals";
import { openRedis, type RedisBench } from "./redis.js";

/** The Redis of a test file, there from its first test on and empty before each; its fields are set by then. */
export function redisOfFile(): RedisBench {
  const bench = {} as RedisBench;
  beforeAll(async () => void Object.assign(bench, await openRedis()));
  afterAll(() => bench.close());
  beforeEach(() => bench.raw.flushall());
  return bench;
}
