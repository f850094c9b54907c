import { afterAll, beforeAll, expect, test } from "@jest/globals";
import type { Cluster } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { redisUrls } from "../../src/kernel/urls.js";
import { clusterOf, clustersOf } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { homeKey, PLACE_KEYS } from "../../src/state/keys.js";
import { keepPlaces } from "../../src/state/servers/places.redis.js";
import { privateNats, privateRedis } from "../support/brokers.js";
import { intoLog, openClusterScene } from "../support/cluster-load.js";
import { type RedisCluster, type RedisClusters, startRedisClusters } from "../support/clusters.js";
import { becomes, eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { JWT_SECRET, launchService, runMain, startService } from "../support/service.js";

const READERS = Array.from({ length: 60 }, (_, number) => `reader-${number}`);

let servers: RedisClusters;
let nats: Broker;
let redis: Cluster;
const closes: (() => unknown)[] = [];

beforeAll(async () => {
  [servers, nats] = await Promise.all([startRedisClusters(2), privateNats()]);
  redis = connectRedis(redisUrls.parse(servers.urls), silent) as Cluster;
  await eventually(() => redis.status === "ready", "Redis is connected");
}, 60_000);

afterAll(async () => {
  for (const close of closes.splice(0).reverse()) await close();
  redis?.disconnect();
  await Promise.all([servers?.stop(), nats?.stop()]);
});

const flush = () => Promise.all(redis.nodes("master").map((master) => master.flushall()));

const inCluster = (at: number): string[] => READERS.filter((reader) => clusterOf(homeKey(reader), 2) === at);

const NOBODY = "127.0.0.1:1";
const optionsOf = (redisUrl: string) => ({
  ...{ redisUrl, natsUrl: nats.url, usersAddress: NOBODY, postsAddress: NOBODY, roles: "bridge,gateway" },
});

async function start(redisUrl: string): Promise<void> {
  const service = await startService(optionsOf(redisUrl));
  expect((await fetch(`${service.httpUrl}/readyz`)).status).toBe(200);
  await service.stop();
}

async function refused(redisUrl: string): Promise<string> {
  const service = await launchService(optionsOf(redisUrl));
  expect(await service.exited).toMatchObject({ code: 1 });
  return service.errors();
}

async function doctorOn(redisUrl: string): Promise<string[]> {
  const run = runMain(["doctor", "--json"], {
    ...{ REDIS_URL: redisUrl, NATS_URL: nats.url, TIMELINE_ROLES: "gateway", TIMELINE_JWT_SECRET: JWT_SECRET },
  });
  await run.exited;
  const findings = JSON.parse(run.output()) as { what: string; says: string }[];
  return findings.filter(({ what }) => /^Redis Cluster/.test(what)).map(({ says }) => says);
}

// Invariant 4.
test("Clusters that are named otherwise than before end the start until they are empty", async () => {
  const [one, two] = servers.clusters.map(({ urls }) => urls) as [string, string];
  const reversed = `${two};${one}`;
  await start(servers.urls);
  expect(await refused(reversed)).toMatch(/is named as number 1 of 2, and holds data of number 2 of 2; .*FLUSHALL/);
  expect((await doctorOn(reversed)).at(-1)).toMatch(/is named as number 1 of 2, and holds data of number 2 of 2/);
  expect(await refused(one)).toMatch(/is named as the only one, and holds data of number 1 of 2/);
  await start(servers.urls);
  await flush();
  await start(reversed);
  await flush();
  // Data of the time before there were several.
  await redis.set("{1}", "data");
  expect(await refused(servers.urls)).toMatch(/is named as number \d of 2, and holds data without a place/);
  await flush();
  const whole = "3 masters answer";
  expect(await doctorOn(servers.urls)).toEqual([whole, whole, expect.stringMatching(/^no Cluster holds data of/)]);
  await start(one);
  await flush();
  const [node, other] = servers.clusters[0]?.masters ?? [];
  // Both name the same Cluster.
  expect(await refused(`${node?.url};${other?.url}`)).toMatch(/is named as number \d of 2, and holds data of number/);
  await flush();
}, 120_000);

test("Clusters that lose their data while they are used get their places again", async () => {
  const places = keepPlaces(redis, { log: silent, everyMs: 20 });
  await flush();
  const held = () => Promise.all(clustersOf(redis).map((cluster) => cluster.get(PLACE_KEYS[7] as string)));
  await becomes(async () => expect(await held()).toEqual(["1/2", "2/2"]));
  places.close();
});

test("a server that serves no Cluster ends the start, and its password is not printed", async () => {
  const other = await privateRedis({ extraArgs: ["--requirepass", "secret"] });
  closes.push(() => other.stop());
  const named = other.url.replace("redis://", "redis://:secret@");
  const errors = await refused(`${servers.clusters[0]?.urls};${named}`);
  expect(errors).toMatch(
    new RegExp(`Redis Cluster 127.0.0.1:${other.port} is not a node of a Redis Cluster; .*REDIS_URL`),
  );
  expect(errors).not.toContain("secret");
});

// Invariants 1, 4 and 5.
test("one of two Clusters is killed under load: the keys of the other are served, and nothing is lost", async () => {
  await flush();
  const scene = await openClusterScene({
    ...{ redisUrl: servers.urls, natsUrl: nats.url, readers: READERS, redis },
    tell: intoLog,
    defer: (close) => closes.push(close),
  });
  await scene.load(40);
  await scene.landed();
  const [first, second] = await Promise.all(servers.clusters.map(({ masters }) => sizeOf(masters)));
  expect(Math.min(first ?? 0, second ?? 0)).toBeGreaterThan(0.3 * ((first ?? 0) + (second ?? 0)));

  const [killed] = servers.clusters as [RedisCluster];
  for (const master of killed.masters) master.kill("SIGKILL");
  await scene.load(20);
  const reader = openReader(scene.service.grpcAddress);
  closes.push(() => reader.close());
  const [there = ""] = inCluster(1);
  const [away = ""] = inCluster(0);
  expect((await redis.zrange(homeKey(there), "0", "-1")).length).toBeGreaterThanOrEqual(40);
  await expect(redis.zrange(homeKey(away), "0", "-1")).rejects.toThrow();
  await eventually(
    () =>
      reader.home(there).then(
        ({ drop_ids }) => drop_ids.length === 20 || `${drop_ids.length} drops`,
        (error: unknown) => String(error),
      ),
    "a page of the other Cluster is read",
  );
  // Events of Redis Pub/Sub come from the first Cluster; event streams stay open.
  const ready = await (await fetch(`${scene.service.httpUrl}/readyz`)).text();
  expect(ready).toContain("bridge: ");
  expect(ready).not.toContain("gateway: ");
  await Promise.all(killed.masters.map((master) => killed.restart(master)));
  await scene.landed();
}, 120_000);

async function sizeOf(masters: readonly Broker[]): Promise<number> {
  const ports = new Set(masters.map(({ port }) => port));
  const nodes = redis.nodes("master").filter(({ options }) => ports.has(options.port as number));
  return (await Promise.all(nodes.map((node) => node.dbsize()))).reduce((sum, size) => sum + size, 0);
}
