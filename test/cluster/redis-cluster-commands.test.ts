import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import type { Cluster } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { redisUrls } from "../../src/kernel/urls.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { unfollowersKey } from "../../src/state/keys.js";
import { privateNats } from "../support/brokers.js";
import { type RedisClusters, startRedisClusters } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { limited } from "../support/limits.js";
import { openReader } from "../support/reader.js";
import { runMain, type Service, startService } from "../support/service.js";
import { startUpstreams, type Upstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const FOLLOWERS = Array.from({ length: 1_500 }, (_, n) => `fan-${n}`);
describe.each([1, 2])("Redis Clusters: %i", (count) => {
  let servers: RedisClusters;
  let nats: Broker;
  let upstreams: Upstreams;
  let service: Service;
  let redis: Cluster;
  const world = new World();

  beforeAll(async () => {
    servers = await startRedisClusters(count);
    nats = await privateNats();
    upstreams = await startUpstreams(world);
    redis = connectRedis(redisUrls.parse(servers.urls), silent) as Cluster;
    service = await startService({
      redisUrl: servers.urls,
      natsUrl: nats.url,
      usersAddress: upstreams.usersAddress,
      postsAddress: upstreams.postsAddress,
      // The audit by hand is to find what is lost, and not the service itself.
      env: limited({ publicationChecks: { rate: 0 } }),
    });
  });

  afterAll(async () => {
    await service?.stop();
    redis?.disconnect();
    await upstreams?.stop();
    await nats?.stop();
    await servers?.stop();
  });

  test("on a Redis Cluster a drop reaches every follower's timeline on every node, and its deletion takes it away", async () => {
    for (const follower of [...FOLLOWERS, "leaver"]) world.follow(follower, "grace");
    const drop = { drop_id: "d-cluster", user_id: "grace", created_at: Date.now() };
    world.post(drop);
    await redis.publish("drop_created", JSON.stringify({ ...drop, visibility: "public" }));
    const keys = [...FOLLOWERS, "grace", "leaver"]
      .map((user) => `timeline:home:${user}`)
      .concat("timeline:local", "timeline:global");
    const holding = async (): Promise<number> =>
      (await Promise.all(keys.map((key) => redis.zscore(key, drop.drop_id)))).filter(
        (score) => Number(score) === drop.created_at,
      ).length;
    await eventually(
      async () => (await holding()) === keys.length || `${await holding()} of ${keys.length}`,
      "all timelines hold the drop",
    );

    const reader = openReader(service.grpcAddress);
    expect((await reader.home("fan-7")).drop_ids).toEqual([drop.drop_id]);
    expect((await reader.local()).drop_ids).toEqual([drop.drop_id]);

    world.remove(drop.drop_id);
    // The deletion finds a user who has left by then, on whatever node that is noted.
    const left = { follower_id: "leaver", following_id: "grace", version: world.unfollow("leaver", "grace") };
    await redis.publish("user_unfollowed", JSON.stringify(left));
    await eventually(async () => (await redis.zscore(unfollowersKey("grace"), "leaver")) !== null, "it is noted");
    await redis.publish("drop_deleted", JSON.stringify({ drop_id: drop.drop_id, user_id: "grace" }));
    await eventually(async () => (await holding()) === 0, "no timeline holds the deleted drop");
    reader.close();
  });

  test("on a Redis Cluster all homes are audited and rebuilt, those of each node", async () => {
    const command = async (...args: readonly string[]): Promise<Record<string, unknown>> => {
      const run = runMain([...args, "--json"], {
        ...{ REDIS_URL: servers.urls, NATS_URL: nats.url },
        ...{ TIMELINE_USER_SERVICE_ADDR: upstreams.usersAddress, TIMELINE_POST_SERVICE_ADDR: upstreams.postsAddress },
        TIMELINE_AUDIT_SETTLE_MS: "100",
      });
      expect({ args, ...(await run.exited), errors: run.errors() }).toMatchObject({ args, code: 0 });
      return JSON.parse(run.output()) as Record<string, unknown>;
    };
    const drop = { drop_id: "d-audit", user_id: "grace", created_at: Date.now() - 60_000 };
    world.post(drop);
    await redis.publish("drop_created", JSON.stringify({ ...drop, visibility: "public" }));
    const homes = [...FOLLOWERS, "grace"].map((user) => `timeline:home:${user}`);
    await eventually(
      async () => (await Promise.all(homes.map((key) => redis.exists(key)))).every((found) => found === 1),
      "every home is there",
    );
    expect(await command("timeline", "rebuild", "--all", "--rate", "5000")).toMatchObject({
      failures: 0,
      complete: true,
    });
    const floors = await Promise.all(homes.map((key) => redis.zscore(key, "~floor")));
    expect(new Set(floors)).toEqual(new Set(["0"]));
    await Promise.all(homes.map((key) => redis.zrem(key, "d-audit")));
    expect(await command("audit", "--users", "60", "--fix")).toMatchObject({
      ...{ users: 60, differ: 60, repaired: 60, remaining: [] },
    });
  });
});
