import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { createFences } from "../../src/state/fences/fences.js";
import { edgesKey } from "../../src/state/keys.js";
import { moveSlot, type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { adaptersOn } from "../support/redis.js";

let cluster: RedisCluster;
let client: RedisClient;
let scripts: Scripts;
beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: false });
  client = connectRedis(cluster.urls.split(","), silent);
  await eventually(() => client.status === "ready", "Redis is connected");
  scripts = createScripts(client);
});
afterAll(async () => {
  client?.disconnect();
  await cluster?.stop();
});

const AUTHORS = Array.from({ length: 40 }, (_, number) => `author-${number}`);

/** Fences on the cluster whose log says that bob has left everybody. */
function scene() {
  let reads = 0;
  const fences = createFences({
    store: adaptersOn(scripts, { maxEntries: 10 }).fenceStore,
    log: silent,
    readHistory: async function* () {
      reads++;
      for (const following_id of AUTHORS) {
        const payload = { follower_id: "bob", following_id, version: 5 };
        yield { event: { name: "user_unfollowed", payload }, time: Date.now() };
      }
    },
  });
  const oldFollow = (following: string) =>
    fences.changeEdges([{ follower: "bob", following, version: 4, follows: true }]);
  return { fences, oldFollow, reads: () => reads };
}

// Invariant 4.
test("a shard that comes back empty is noticed: no old follow wins on any shard", async () => {
  const { fences, oldFollow, reads } = scene();
  await fences.recordTombstones([{ drop: "d1", time: Date.now() }]);
  expect(reads()).toBe(1);
  for (const [index, { url }] of cluster.masters.entries()) {
    const shard = new Redis(url);
    expect(await shard.dbsize()).toBeGreaterThan(0);
    await shard.flushall();
    shard.disconnect();
    for (const author of AUTHORS) expect(await oldFollow(author)).toEqual([{ version: 5, follows: false }]);
    expect(reads()).toBe(index + 2);
    for (const author of AUTHORS) expect(await fences.unfollowedAmong(author, ["bob", "eve"])).toEqual(["bob"]);
  }
});

// Invariant 4.
test("a slot that moves to another shard takes its floor along, and does not count as a loss", async () => {
  const { fences, oldFollow, reads } = scene();
  await fences.unfollowedAmong("author-0", ["bob"]);
  const before = reads();
  const [first, second] = cluster.masters;
  if (!first || !second) throw new Error("no masters");
  let moved = 0;
  for (const author of AUTHORS) {
    const slot = Number(
      await (client as { cluster(how: string, key: string): Promise<unknown> }).cluster("KEYSLOT", edgesKey(author)),
    );
    if (slot <= 5_460) moved += await moveSlot(cluster, slot, first, second);
  }
  expect(moved).toBeGreaterThan(0);
  for (const author of AUTHORS) expect(await oldFollow(author)).toEqual([{ version: 5, follows: false }]);
  expect(reads()).toBe(before);
});
