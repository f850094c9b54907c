import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Cluster } from "ioredis";
import type { Broker } from "../../src/brokers/index.js";
import { privateNats } from "../support/brokers.js";
import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/facts.js";
import { openReader } from "../support/reader.js";
import { type Service, startService } from "../support/service.js";
import { startUpstreams, type Upstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

const FOLLOWERS = Array.from({ length: 1_500 }, (_, n) => `fan-${n}`);
let cluster: RedisCluster;
let nats: Broker;
let upstreams: Upstreams;
let service: Service;
let redis: Cluster;
const world = new World();

beforeAll(async () => {
  cluster = await startRedisCluster({ replicas: false });
  nats = await privateNats();
  upstreams = await startUpstreams(world);
  redis = new Cluster(cluster.urls.split(","));
  service = await startService({
    redisUrl: cluster.urls,
    natsUrl: nats.url,
    usersAddress: upstreams.usersAddress,
    postsAddress: upstreams.postsAddress,
  });
});

afterAll(async () => {
  await service?.stop();
  redis?.disconnect();
  await upstreams?.stop();
  await nats?.stop();
  await cluster?.stop();
});

test("on a Redis Cluster a drop reaches every follower's timeline on every node, and its deletion takes it away", async () => {
  for (const follower of FOLLOWERS) world.follow(follower, "grace");
  const drop = { drop_id: "d-cluster", user_id: "grace", created_at: Date.now() };
  world.post(drop);
  await redis.publish("drop_created", JSON.stringify({ ...drop, visibility: "public" }));
  const keys = [...FOLLOWERS, "grace"]
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
  await redis.publish("drop_deleted", JSON.stringify({ drop_id: drop.drop_id, user_id: "grace" }));
  await eventually(async () => (await holding()) === 0, "no timeline holds the deleted drop");
  reader.close();
});
