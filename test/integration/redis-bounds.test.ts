import { expect, test } from "@jest/globals";
import { handle, openFanout, work } from "../support/fanout.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, received, unfollowed } from "../support/timeline-events.js";
import { heldBy } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

const NOW = Date.now();
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
test("no timeline holds more than the cap, whoever writes to it", async () => {
  await everyKind(new World(), 20);
  const keys = await redis.raw.keys("timeline:home:*");
  const timelines = await heldBy(redis.raw, [...keys, "timeline:local", "timeline:global"]);
  const sizes = [...timelines.values()].map(({ entries }) => entries.length);
  expect(Math.max(...sizes)).toBeLessThanOrEqual(20);
  expect(timelines.get("timeline:local")?.entries.length).toBeGreaterThanOrEqual(18);
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
