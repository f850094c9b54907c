import { expect, test } from "@jest/globals";
import { createFences } from "../../src/consistency/fences/fences.js";
import { NOTIFY_WINDOW_MS } from "../../src/contracts/times.js";
import { silent } from "../../src/kernel/logger.js";
import { readPage } from "../../src/timeline/pages.js";
import { becomes } from "../support/eventually.js";
import { historyOf } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { held, homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();
const HOME = homeKey("rik");

test("a read takes drops out of a home that were deleted long ago, and leaves those of whose deletion listeners may still be told", async () => {
  const { store, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  await redis.raw.zadd(HOME, 0, "~floor", 1, "kept", 2, "long ago", 3, "lately");
  const now = Date.now();
  await fences.recordTombstones([
    { drop: "long ago", time: now - NOTIFY_WINDOW_MS - 1_000 },
    { drop: "lately", time: now },
  ]);
  const query = { direction: "older", above: undefined, below: undefined, count: 5 } as const;
  expect(await readPage({ store, fences }, HOME, query)).toEqual([{ drop: "kept", score: 1 }]);
  await becomes(async () => {
    const { entries } = await held(redis.raw, HOME);
    expect(entries.map(([drop]) => drop)).toEqual(["lately", "kept"]);
  });
});
