import { beforeEach, describe, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { DAY } from "../../src/kernel/time.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { createFences } from "../../src/state/fences/fences.js";
import { DELETED_PREFIX, edgePart, unfollowersKey } from "../../src/state/keys.js";
import { followers, handle, openFanout } from "../support/fanout.js";
import { historyOf } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { serversOf } from "../support/servers.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const NOW = Date.now();
const deletedKey = (author: string): string => `${DELETED_PREFIX}${edgePart(author)}:${author}`;
const names = (what: string, count: number): string[] =>
  Array.from({ length: count }, (_, number) => `${what}-${number}`);
const DROP = { drop_id: "d1", user_id: "ada", visibility: "followers", created_at: NOW } as const;

describe.each(["one server", "a Redis Cluster"] as const)("%s", (name) => {
  const bench = serversOf(name);
  let client: RedisClient;
  let scripts: Scripts;
  /** Commands of the service that are no scripts. */
  let commands: string[];

  beforeEach(() => {
    commands = [];
    client = bench.client;
    const command: Scripts["command"] = (one, call) => {
      commands.push(one);
      return bench.scripts.command(one, call);
    };
    scripts = { ...bench.scripts, command };
  });

  const idsOf = async (user: string): Promise<string[]> =>
    (await client.zrange(homeKey(user), "0", "-1")).filter((id) => id !== "~floor");
  const fanout = (world: World) => openFanout({ scripts }, world);
  const fencesWith = (log: Parameters<typeof historyOf>[0] = []) =>
    createFences({
      store: adaptersOn(scripts, { maxEntries: 10_000 }).fenceStore,
      readHistory: historyOf(log),
      log: silent,
    });
  const put = (user: string, ...drops: readonly string[]) =>
    client.zadd(homeKey(user), ...drops.flatMap((drop) => [NOW, drop]));

  // Invariant 4.
  test.each(["the deletion", "the unfollow"])(
    "a deletion and an unfollow that both missed a drop take it away, where %s comes first",
    async (first) => {
      const world = followers(2);
      world.post(DROP);
      const bench = fanout(world);
      await handle(bench, created(DROP));
      expect(await Promise.all([idsOf("f0"), idsOf("f1")])).toEqual([["d1"], ["d1"]]);
      world.remove("d1");
      const left = unfollowed("f0", "ada", world.unfollow("f0", "ada"));
      const events = [deleted("d1", "ada"), left];
      if (first === "the unfollow") events.reverse();
      // Another process: it knows no list of followers from before.
      const later = fanout(world);
      await handle(later, events[0] as typeof left);
      expect(await idsOf("f0")).toEqual(["d1"]);
      for (let number = 0; number < 30; number++)
        await handle(later, deleted(`other-${number}`, `author-${number % 7}`));
      await handle(later, events[1] as typeof left);
      expect(await Promise.all([idsOf("f0"), idsOf("f1")])).toEqual([[], []]);
    },
  );

  // Invariant 4.
  test("a drop deleted between the read of an author's drops and the write of a follow does not stay", async () => {
    const world = new World();
    world.post(DROP, { ...DROP, drop_id: "d2" });
    const elsewhere = fanout(world);
    const bench = openFanout({ scripts }, world, {
      change: (deps) => ({
        ...deps,
        readAuthorDrops: async (...of) => {
          const page = await deps.readAuthorDrops(...of);
          world.remove("d1");
          await handle(elsewhere, deleted("d1", "ada"));
          return page;
        },
      }),
    });
    await handle(bench, followed("bob", "ada", world.follow("bob", "ada")));
    expect(await idsOf("bob")).toEqual(["d2"]);
  });

  // Invariant 11.
  test("a change of edges reads no home, but those of followers of an author with 1,000 deletions in a week", async () => {
    const world = new World();
    const bench = fanout(world);
    await handle(bench, followed("bob", "ada", world.follow("bob", "ada")));
    await handle(bench, deleted("d1", "ada"));
    await put("bob", "d1", "d2");
    await handle(bench, unfollowed("bob", "ada", world.unfollow("bob", "ada")));
    expect([await idsOf("bob"), commands.includes("zrange")]).toEqual([["d2"], false]);
    await fencesWith().recordTombstones(names("old", 1_200).map((drop) => ({ drop, author: "ada", time: NOW })));
    await put("bob", "old-0", "old-600", "old-1199");
    await handle(bench, followed("bob", "ada", world.follow("bob", "ada")));
    expect([await idsOf("bob"), commands.includes("zrange")]).toEqual([["d2"], true]);
  });

  // Invariant 4.
  test("of many authors with many deletions each, all deleted drops go from the homes of their own followers", async () => {
    const fences = fencesWith();
    const authors = names("author", 30);
    const deletions = authors.flatMap((author) => names(author, 300).map((drop) => ({ drop, author, time: NOW })));
    await fences.recordTombstones(deletions);
    for (const author of authors)
      await put(`reader of ${author}`, `${author}-0`, `${author}-299`, "alive", "author-1-5");
    await fences.removeDeleted(new Map([...authors, "nobody"].map((author) => [author, [`reader of ${author}`]])));
    for (const author of authors) {
      const left = author === "author-1" ? ["alive"] : ["alive", "author-1-5"];
      expect([author, await idsOf(`reader of ${author}`)]).toEqual([author, left]);
    }
  });

  // Invariant 4.
  test("deleted drops that were lost, all or of one author, are refilled before a look ends", async () => {
    const payloads = [{ drop_id: "d1", user_id: "ada" }, { drop_id: "d2" }, { drop_id: "d3", user_id: "eve" }];
    const log = payloads.map((payload) => ({ event: { name: "drop_deleted", payload }, time: NOW }) as const);
    const fences = fencesWith(log);
    const look = async (): Promise<string[]> => {
      await adaptersOn(scripts, { maxEntries: 10 }).writer.rememberActor("d2", "ada");
      await put("bob", "d1", "d2", "d3");
      await fences.removeDeleted(new Map([["ada", ["bob"]]]));
      return idsOf("bob");
    };
    expect(await look()).toEqual(["d3"]);
    await client.del(deletedKey("ada"));
    expect(await look()).toEqual(["d3"]);
    await client.del(`timeline:x:edges:${edgePart("ada")}`, deletedKey("ada"));
    expect(await look()).toEqual(["d3"]);
  });

  // Invariant 4.
  test("lost fences that the log no longer holds are not waited for", async () => {
    const fences = fencesWith();
    await fences.recordTombstones([{ drop: "d1", author: "ada", time: NOW - 7 * DAY }]);
    await fences.changeEdges([{ follower: "bob", following: "ada", version: 1, follows: false }]);
    await client.del(deletedKey("ada"), unfollowersKey("ada"));
    await fences.removeDeleted(new Map([["ada", ["bob"]]]));
    for await (const page of fences.recentUnfollowers("ada", 0)) expect(page).toEqual("no page");
  });
});
