import { afterEach, expect, test } from "@jest/globals";
import { Cluster, Redis } from "ioredis";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateNats } from "../support/brokers.js";
import { type ClusterScene, intoLog, openClusterScene } from "../support/cluster-load.js";
import { moveSlot, type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";

const READERS = Array.from({ length: 60 }, (_, number) => `reader-${number}`);
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

interface Scene extends ClusterScene {
  readonly cluster: RedisCluster;
  readonly redis: Cluster;
}

async function open(options: Parameters<typeof startRedisCluster>[0]): Promise<Scene> {
  const cluster = await startRedisCluster(options);
  closes.push(() => cluster.stop());
  const nats = await privateNats();
  closes.push(() => nats.stop());
  const redis = new Cluster(cluster.urls.split(","), { retryDelayOnFailover: 100, clusterRetryStrategy: () => 200 });
  redis.on("error", () => undefined);
  closes.push(() => redis.disconnect());
  const scene = await openClusterScene({
    ...{ redisUrl: cluster.urls, natsUrl: nats.url, readers: READERS, redis },
    // Into the log itself: what a failing Pub/Sub loses is another matter.
    tell: intoLog,
    defer: (close) => closes.push(close),
  });
  return { ...scene, cluster, redis };
}

// Invariant 1.
test("a master killed under load: a replica takes over, and nothing is lost", async () => {
  const scene = await open({ replicas: true });
  await scene.load(60);
  const loading = scene.load(200);
  const [master] = scene.cluster.masters as [Broker];
  await eventually(() => scene.history.length > 120, "the load is under way");
  master.kill("SIGKILL");
  await loading;
  await scene.load(20);
  await scene.landed();
}, 180_000);

function direct({ url }: Broker): Redis {
  const node = new Redis(url);
  closes.push(() => node.disconnect());
  return node;
}

// Invariant 1.
test("a master is cut off from the other nodes, but not from clients: what it confirms meanwhile comes from the log", async () => {
  const scene = await open({ replicas: true, divisible: true });
  const { masters, replicas, routes } = scene.cluster;
  await scene.load(60);
  await scene.streams.settled(60);
  const [master, replica] = [direct(masters[0] as Broker), direct(replicas[0] as Broker)];
  const [home = ""] = await master.keys("timeline:home:*");
  await replica.readonly();
  routes?.isolate(0);
  const loading = scene.load(200);
  const confirmed = async () => (await master.zcard(home)) > (await replica.zcard(home));
  await eventually(confirmed, "it confirms writes that its replica does not have");
  await loading;
  const role = async (node: Redis): Promise<unknown> => (await node.role())[0];
  await eventually(async () => (await role(replica)) === "master", "the replica takes over", 30_000);
  await scene.landed();
  routes?.heal();
  await eventually(async () => (await role(master)) === "slave", "the former master is a replica", 30_000);
  await scene.load(20);
  await scene.landed();
}, 120_000);

// Invariant 1.
test("slots that move from one master to another and back under load: nothing is lost or doubled", async () => {
  const scene = await open({ replicas: false });
  await scene.load(40);
  await scene.streams.settled(40);
  const slots = await Promise.all(
    READERS.map(async (reader) => Number(await scene.redis.cluster("KEYSLOT", `timeline:home:${reader}`))),
  );
  const ofTheFirst = [...new Set(slots)].filter((slot) => slot <= 5_460);
  const [first, second] = scene.cluster.masters as [Broker, Broker];
  let isLoaded = false;
  const loading = scene.load(500).finally(() => {
    isLoaded = true;
  });
  let [rounds, moved] = [0, 0];
  for (; !isLoaded || rounds < 2; rounds++) {
    const [from, to] = rounds % 2 === 0 ? [first, second] : [second, first];
    for (const slot of ofTheFirst) moved += await moveSlot(scene.cluster, slot, from, to);
  }
  await loading;
  expect(moved).toBeGreaterThan(2 * ofTheFirst.length);
  await scene.landed();
}, 120_000);
