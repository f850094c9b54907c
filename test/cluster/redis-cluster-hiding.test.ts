import { afterEach, expect, test } from "@jest/globals";
import { Cluster } from "ioredis";
import { entryOfDrop } from "../../src/contracts/timelines.js";
import { privateNats } from "../support/brokers.js";
import { startRedisCluster } from "../support/clusters.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { onceIn, REPOST_WINDOW } from "../support/reposts-once.js";
import { startService } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { openStreams } from "../support/streams.js";
import { created, related } from "../support/timeline-events.js";
import { startUpstreams } from "../support/upstreams.js";
import { World, type WorldDrop } from "../support/world.js";

const START = Date.now() - 600_000;
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

test("on a Redis Cluster pages and streams are without those whom a user hides, pulled or pushed", async () => {
  const cluster = await startRedisCluster({ replicas: false });
  closes.push(() => cluster.stop());
  const nats = await privateNats();
  closes.push(() => nats.stop());
  const redis = new Cluster(cluster.urls.split(","));
  closes.push(() => redis.disconnect());
  const world = new World();
  for (const author of ["bob", "cat", "pia"]) world.follow("ada", author);
  // Pia is pulled.
  for (const fan of ["fan-1", "fan-2", "fan-3"]) world.follow(fan, "pia");
  const { usersAddress, postsAddress, stop } = await startUpstreams(world);
  closes.push(stop);
  const service = await startService({
    ...{ redisUrl: cluster.urls, natsUrl: nats.url, usersAddress, postsAddress },
    env: { TIMELINE_FANOUT_PULL_THRESHOLD: "3" },
  });
  closes.push(() => service.stop());
  const streams = await openStreams(nats.url);
  closes.push(() => streams.close());
  const reads = openReader(service.grpcAddress);
  closes.push(() => reads.close());
  let posted = 0;
  const post = async (user_id: string, repost: Pick<WorldDrop, "repost_of" | "repost_author"> = {}) => {
    posted++;
    const at = { drop_id: `${user_id}-${posted}`, user_id, created_at: START + posted };
    const drop = { ...at, visibility: "public", ...repost } as const;
    world.post(drop);
    await redis.publish("drop_created", JSON.stringify(created(drop).payload));
    return drop.drop_id;
  };
  const pagesAgree = (user = "ada") =>
    becomes(async () => {
      const once = onceIn(world.homeOf(user).map(entryOfDrop), REPOST_WINDOW);
      const [home, local] = [once.map(({ drop }) => drop), world.localOf(user).map(({ drop_id }) => drop_id)];
      expect(await reads.home(user, { limit: 100 })).toMatchObject({ drop_ids: home, degraded: false });
      expect(await reads.local({ user_id: user, limit: 100 })).toMatchObject({ drop_ids: local, degraded: false });
    }, 30_000);
  const tell = async (channel: "user_muted" | "user_unmuted", target: string, how = {}) =>
    redis.publish(channel, JSON.stringify(related(channel, "ada", target, how).payload));

  await post("pia");
  await eventually(
    async () => (await redis.hget("timeline:x:pulled", "pia"))?.startsWith("pulled") ?? false,
    "pia is pulled",
  );
  const bobs = await post("bob");
  for (const author of ["cat", "pia"]) await post(author, { repost_of: bobs, repost_author: "bob" });
  await post("cat");
  await pagesAgree();
  const stream = await openEvents(service.httpUrl, "ada");

  world.mute("ada", "bob");
  await tell("user_muted", "bob");
  await pagesAgree();
  world.mute("ada", "pia", true);
  await tell("user_muted", "pia", { reposts_only: true });
  await pagesAgree();
  await post("bob");
  await post("cat", { repost_of: bobs, repost_author: "bob" });
  await post("pia", { repost_of: bobs, repost_author: "bob" });
  await post("pia");
  await post("pia", { repost_of: "cat-5", repost_author: "cat" });
  const last = await post("cat");
  await pagesAgree();
  await eventually(() => stream.drops().includes(last), "the last drop on the stream");
  const shown = new Set(world.homeOf("ada").map(({ drop_id }) => drop_id));
  await becomes(async () => expect(stream.drops()).toContain("pia-9"));
  expect(stream.drops().filter((drop) => !shown.has(drop))).toEqual([]);

  world.unmute("ada", "bob");
  await tell("user_unmuted", "bob", { version: 2 });
  await pagesAgree();
  await pagesAgree("fan-1");
  expect(await streams.count("DLQ")).toBe(0);
  stream.close();
}, 120_000);
