import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { createRebuild } from "../../src/reads/rebuild.js";
import { createFences } from "../../src/state/fences/fences.js";
import { edgeField, edgesKey } from "../../src/state/keys.js";
import { createAttempts } from "../../src/state/messages/attempts.redis.js";
import { deliveryOf } from "../support/deliveries.js";
import { handle, openFanout, work } from "../support/fanout.js";
import { historyOf, rebuildQueue } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, received, unfollowed } from "../support/timeline-events.js";
import { heldBy } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

/** These stay; the third forgets by time, the others have a cap. */
const LASTING = [
  ...["timeline:global", "timeline:local", "timeline:tombstones"],
  ...["timeline:x:bylines:{timeline:global}", "timeline:x:bylines:{timeline:local}"],
];
const NOW = Date.now();
const DROPS_AGE_MS =
  (JSON.parse(readFileSync("nats/streams/DROPS.json", "utf8")) as { max_age: number }).max_age / 1_000_000;

/** Handles events of every kind, large fan-outs and failures included. */
async function everyKind(world: World, maxEntries: number): Promise<void> {
  for (let reader = 0; reader < 7; reader++) world.follow(`f${reader}`, "ada");
  const bench = openFanout(redis, world, { pageSize: 3, maxEntries });
  for (let number = 0; number < 30; number++) {
    const drop = { drop_id: `d${number}`, user_id: "ada", visibility: "public", created_at: NOW - number } as const;
    world.post(drop);
    await handle(bench, created(drop));
  }
  await handle(bench, created({ ...{ drop_id: "dm", user_id: "ada" }, visibility: "direct", created_at: NOW }));
  await handle(bench, received({ drop_id: "https://remote.example/1", user_id: "rita", created_at: NOW }));
  await handle(bench, received({ drop_id: "https://remote.example/2", created_at: NOW }));
  await work(bench);
  world.remove("d3");
  await handle(bench, deleted("d3", "ada"));
  await handle(bench, deleted("https://remote.example/1"));
  await handle(bench, followed("rik", "ada", world.follow("rik", "ada")));
  await handle(bench, unfollowed("f1", "ada", world.unfollow("f1", "ada")));
  await work(bench);
}

// Invariant 11.
test("whatever is handled, each key it leaves has a time to live, but for those that have a bound of their own", async () => {
  await everyKind(new World(), 1_000);
  const { store, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 1_000 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue,
    log: silent,
    observe: () => undefined,
  });
  for (const key of ["timeline:home:f0", "timeline:home:cold"]) {
    await rebuild(key, async () => ({ entries: [{ drop: "d1", score: 1 }], floor: 0 }));
    await store.read({ key, direction: "older", from: undefined, count: 1 });
  }
  await store.remove("timeline:home:f0", ["d1"]);
  await store.rebuildLease("timeline:home:other").hold();
  await fenceStore.lease.hold();
  const attempts = createAttempts(redis.scripts);
  await attempts.begin(deliveryOf(), "one", false);
  await attempts.fail(deliveryOf({ seq: 2 }), "other");
  const keys = await redis.raw.keys("*");
  // Of each kind one at least, so that no kind is looked at in vain.
  for (const kind of [
    "home",
    "x:generation",
    "x:edges",
    "x:unfollowers",
    "x:deleted",
    "x:attempts",
    "x:fanout",
    "x:actor",
    "x:direct",
    "x:created-at",
    "x:taken",
    "x:rebuilding",
  ])
    expect([kind, keys.some((key) => key.startsWith(`timeline:${kind}:`))]).toEqual([kind, true]);
  expect(keys).toContain("timeline:x:refilling");
  const lasting: string[] = [];
  // A hash of follow edges forgets by itself: "change edges: what is too old goes as others change".
  const forgetting = /^timeline:x:edges:/;
  for (const key of keys) if (!forgetting.test(key) && (await redis.raw.pttl(key)) < 0) lasting.push(key);
  expect(lasting.sort()).toEqual(LASTING);
});

// Invariant 11.
test("no timeline holds more than the cap, whoever writes to it", async () => {
  await everyKind(new World(), 20);
  const keys = await redis.raw.keys("timeline:home:*");
  const timelines = await heldBy(redis.raw, [...keys, "timeline:local", "timeline:global"]);
  const sizes = [...timelines.values()].map(({ entries }) => entries.length);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(20);
  expect(timelines.get("timeline:local")?.entries.length).toBeGreaterThanOrEqual(18);
});

// Invariant 4.
test("fences live longer than the log holds events, and are then forgotten", async () => {
  const { fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  await fenceStore.mark("begin", -1);
  await fenceStore.mark("finish", -1);
  await fenceStore.changeEdges([{ follower: "bob", following: "ada", version: 1, follows: false }]);
  await fenceStore.renewGenerations(["ada"]);
  for (const key of await redis.raw.keys("timeline:x:[gl]*"))
    expect([key, (await redis.raw.pttl(key)) > DROPS_AGE_MS]).toEqual([key, true]);
  const field = `${edgeField("ada")}bob`;
  const noted = (daysAgo: number) =>
    redis.raw.hset(edgesKey("ada"), field, `1:0:${Math.floor(Date.now() / 1_000 - daysAgo * 86_400)}`);
  const changeOthers = async () => {
    for (let number = 0; number < 200; number++)
      await fenceStore.changeEdges([{ follower: `eve-${number}`, following: "ada", version: 1, follows: true }]);
  };
  await noted(7.4);
  await changeOthers();
  expect(await redis.raw.hexists(edgesKey("ada"), field)).toBe(1);
  await noted(7.6);
  await changeOthers();
  expect(await redis.raw.hexists(edgesKey("ada"), field)).toBe(0);
  const asOldAsTheLog = { drop: "as old as the log", time: Date.now() - DROPS_AGE_MS };
  const olderByDays = { drop: "older by days", time: Date.now() - DROPS_AGE_MS - 3 * 86_400_000 };
  await fenceStore.recordTombstones([olderByDays, asOldAsTheLog]);
  await fenceStore.recordTombstones([]);
  const tombstoned = await fenceStore.tombstonedAmong(["as old as the log", "older by days"]);
  expect([...(tombstoned ?? [])]).toEqual(["as old as the log"]);
});

// Invariant 11.
test("the jobs of a large fan-out fit into a message, however long the names are", async () => {
  const world = new World();
  for (let reader = 0; reader < 9_000; reader++) world.follow(`"${reader}`.padEnd(128, '"'), "ada");
  const bench = openFanout(redis, world, { pageSize: 5_000 });
  await handle(bench, created({ drop_id: "d1", user_id: "ada", visibility: "followers", created_at: NOW }));
  const sizes = bench.jobs.map((job) => Buffer.byteLength(JSON.stringify(job)));
  expect(sizes.length).toBeGreaterThan(2);
  expect(Math.max(...sizes)).toBeLessThan(1_000_000);
  expect(new Set(bench.jobs.flatMap(({ user_ids }) => user_ids)).size).toBe(9_001);
});

test("a home that is rebuilt where there was no key has a time to live before anybody reads it", async () => {
  const { store, hidden, fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
  const rebuild = createRebuild({
    store,
    fences,
    fillHidden: hidden.fill,
    rebuildQueue,
    log: silent,
    observe: () => undefined,
  });
  for (const floor of [0, 1]) {
    await rebuild(`timeline:home:cold-${floor}`, async () => ({ entries: [{ drop: "d1", score: 1 }], floor }));
    expect(await redis.raw.pttl(`timeline:home:cold-${floor}`)).toBeGreaterThan(0);
  }
});
