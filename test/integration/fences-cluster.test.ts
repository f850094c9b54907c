import { expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { createFences } from "../../src/state/fences/fences.js";
import { edgesKey } from "../../src/state/keys.js";
import { moveSlot } from "../support/clusters.js";
import { adaptersOn } from "../support/redis.js";
import { serversOf } from "../support/servers.js";

const bench = serversOf("a Redis Cluster");
const AUTHORS = Array.from({ length: 40 }, (_, number) => `author-${number}`);

/** Fences on the cluster whose log says that bob has left everybody. */
function scene() {
  let reads = 0;
  const fences = createFences({
    store: adaptersOn(bench.scripts, { maxEntries: 10 }).fenceStore,
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
  for (const [index, { url }] of bench.cluster.masters.entries()) {
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
  const [first, second] = bench.cluster.masters;
  if (!first || !second) throw new Error("no masters");
  let moved = 0;
  for (const author of AUTHORS) {
    const slot = Number(
      await (bench.client as { cluster(how: string, key: string): Promise<unknown> }).cluster(
        "KEYSLOT",
        edgesKey(author),
      ),
    );
    if (slot <= 5_460) moved += await moveSlot(bench.cluster, slot, first, second);
  }
  expect(moved).toBeGreaterThan(0);
  for (const author of AUTHORS) expect(await oldFollow(author)).toEqual([{ version: 5, follows: false }]);
  expect(reads()).toBe(before);
});
