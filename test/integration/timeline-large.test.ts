import { expect, test } from "@jest/globals";
import type { TimelineEntry } from "../../src/contracts/timelines.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { silent } from "../../src/kernel/logger.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import { createFences } from "../../src/state/fences/fences.js";
import { handle, openFanout } from "../support/fanout.js";
import { historyOf, rebuildQueue } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { unfollowed } from "../support/timeline-events.js";
import { held } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

/** As many as can be configured. */
const MAX = 100_000;
const KEY = "timeline:home:ada";
const redis = redisOfFile();

const drops = (prefix: string, from = 0): TimelineEntry[] =>
  Array.from({ length: MAX }, (_, index) => ({ drop: `${prefix}${MAX - index}`, score: from + MAX - index }));

async function fill(entries: readonly TimelineEntry[]): Promise<void> {
  for (const part of chunked(entries, 5_000))
    await redis.raw.zadd(KEY, ...part.flatMap(({ score, drop }) => [score, drop]));
}

function scene() {
  const { store, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: MAX });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue,
    log: silent,
    observe: () => undefined,
  });
  return { store, hidden, fences, fenceStore, rebuild };
}

test("a timeline of 100,000 drops that holds 100,000 others is rebuilt", async () => {
  const { rebuild } = scene();
  await fill(drops("stale"));
  const entries = drops("true", 5);
  await rebuild(KEY, async () => ({ entries, floor: 5 }));
  const now = await held(redis.raw, KEY);
  expect(now.floor).toBe(5);
  expect(now.entries).toEqual(entries.map(({ drop, score }) => [drop, score]));
  expect(await redis.raw.pttl(KEY)).toBeGreaterThan(0);
  for (const kind of ["staged", "rebuilding"]) expect(await redis.raw.keys(`timeline:x:${kind}:*`)).toEqual([]);
});

// Invariant 5.
test("while a large snapshot is written no read takes a part of it for the whole", async () => {
  const { store, hidden } = scene();
  await fill(drops("stale"));
  await hidden.fill("ada");
  const entries = drops("true");
  expect(await store.beginRebuild(KEY, -7)).toHaveLength(MAX);
  let done = false;
  const gone = drops("stale").map(({ drop }) => drop);
  const finishing = store.finishRebuild(KEY, { mark: -7, gone, snapshot: { entries, floor: 0 } }).finally(() => {
    done = true;
  });
  let incomplete = 0;
  while (!done) {
    const page = await store.read({ key: KEY, direction: "older", from: undefined, count: 10 });
    if (page.floor === undefined) incomplete++;
    else expect(page.entries).toEqual(entries.slice(0, 10));
  }
  expect(await finishing).toBe(true);
  expect(incomplete).toBeGreaterThan(0);
  expect(await redis.raw.zcard(KEY)).toBe(MAX + 1);
});

test("a large snapshot that was superseded leaves the timeline as it is, and nothing without a time to live", async () => {
  const { store, hidden } = scene();
  await hidden.fill("ada");
  await store.beginRebuild(KEY, -7);
  await redis.raw.zadd(KEY, 1, "new");
  await store.beginRebuild(KEY, -8);
  const snapshot = { entries: drops("outdated"), floor: 0 };
  expect(await store.finishRebuild(KEY, { mark: -7, gone: ["new"], snapshot })).toBe(false);
  expect((await held(redis.raw, KEY)).entries).toEqual([["new", 1]]);
  for (const key of await redis.raw.keys("timeline:x:staged:*")) expect(await redis.raw.pttl(key)).toBeGreaterThan(0);
});

test("what fan-out writes while a large snapshot is read stays, and the cap holds", async () => {
  const { rebuild } = scene();
  const entries = drops("true");
  await rebuild(KEY, async () => {
    await redis.raw.zadd(KEY, 2 * MAX, "new");
    return { entries, floor: 0 };
  });
  expect(await redis.raw.zcard(KEY)).toBe(MAX + 1);
  const { floor, entries: now } = await held(redis.raw, KEY);
  expect([now[0], now[1], floor]).toEqual([["new", 2 * MAX], [`true${MAX}`, MAX], 1]);
});

test("100,000 deleted drops are removed from a home, by a graph event and by a rebuild", async () => {
  const { rebuild, fenceStore, fences } = scene();
  const entries = drops("dead");
  await fences.tombstonedAmong(["any"]);
  for (const part of chunked(entries, 5_000))
    await fenceStore.recordTombstones(part.map(({ drop }) => ({ drop, author: "bob", time: Date.now() })));
  await fill(entries);
  await redis.raw.zadd(KEY, 0, "~floor", 2 * MAX, "alive");
  await handle(openFanout(redis, new World(), { maxEntries: MAX }), unfollowed("ada", "bob", 1));
  expect((await held(redis.raw, KEY)).entries).toEqual([["alive", 2 * MAX]]);
  await rebuild(KEY, async () => ({ entries, floor: 0 }), { afresh: true });
  expect((await held(redis.raw, KEY)).entries).toEqual([]);
});
