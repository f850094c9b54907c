import { afterAll, beforeAll, expect, test } from "@jest/globals";
import slotOf from "cluster-key-slot";
import { type Cluster, Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { namedClusters, redisUrls } from "../../src/kernel/urls.js";
import { clusterOf, clustersOf } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts } from "../../src/platform/redis/scripts.js";
import { trackChanges } from "../../src/platform/redis/tracking.js";
import { type Entries, readPage } from "../../src/reads/pages.js";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import type { PulledAuthor } from "../../src/state/big-authors/pulled.js";
import { PageCache } from "../../src/state/entries/page-cache.js";
import type { TimelineStore } from "../../src/state/entries/store.redis.js";
import { isIncomplete } from "../../src/state/entries/stored.js";
import { createFences } from "../../src/state/fences/fences.js";
import { startTombstoneCopy } from "../../src/state/fences/tombstone-copy.redis.js";
import {
  DELETIONS_CHANNEL,
  hiddenKeyOfHome,
  PULLED_KEY,
  pullsKeyOfHome,
  TOMBSTONES_KEY,
} from "../../src/state/keys.js";
import { moveSlot, type RedisCluster, type RedisClusters, startRedisClusters } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { historyOf } from "../support/memory-upstreams.js";
import { below, oneOf, type Random, seeded } from "../support/random.js";
import { adaptersOn } from "../support/redis.js";

const HOMES = ["ada", "bob", "cy", "dan"].map((user) => `timeline:home:${user}`);
const AUTHORS = ["big", "huge"];
const AUTHOR_KEYS = AUTHORS.map((author) => `timeline:author:${author}`);
const KEYS = [...HOMES, ...AUTHOR_KEYS];

let servers: RedisClusters;
let raw: Cluster;
const connect = async (count: number): Promise<Cluster> => {
  const urls = namedClusters(redisUrls.parse(servers.urls)).slice(0, count);
  const one = connectRedis(urls.flat(), silent) as Cluster;
  await eventually(() => one.status === "ready", "Redis is connected");
  return one;
};
beforeAll(async () => {
  servers = await startRedisClusters(2);
});
afterAll(async () => {
  raw?.disconnect();
  await servers?.stop();
});

async function onEach(ask: (server: Redis) => Promise<unknown>): Promise<void> {
  for (const { url } of servers.clusters.flatMap(({ masters }) => masters)) {
    const server = new Redis(url);
    await ask(server).finally(() => server.disconnect());
  }
}

/** The client may name the former owner of a slot for a moment: the servers are asked. */
async function ownerOf(slot: number, cluster: RedisCluster): Promise<Broker> {
  const owners: Broker[] = [];
  for (const master of cluster.masters) {
    const server = new Redis(master.url);
    const said = (await server.call("CLUSTER", "SLOTS")) as [number, number, [string, number]][];
    server.disconnect();
    if (said.some(([from, to, [, port]]) => slot >= from && slot <= to && port === master.port)) owners.push(master);
  }
  return owners[0] as Broker;
}

async function moveAway(key: string): Promise<void> {
  const cluster = servers.clusters[clusterOf(key, clustersOf(raw).length)] as RedisCluster;
  const from = await ownerOf(slotOf(key), cluster);
  const to = cluster.masters.find((one) => one !== from) as Broker;
  await moveSlot(cluster, slotOf(key), from, to);
}

const registry = new Map<string, PulledAuthor>();

async function turn(author: string, state: "pulled" | "pushed"): Promise<void> {
  if (state === "pushed") registry.delete(author);
  else registry.set(author, { state, by: "hand", since: 0 });
  if (state === "pushed") await raw.hdel(PULLED_KEY, author);
  else await raw.hset(PULLED_KEY, author, `${state}:hand:0`, "~version", 1);
}

function stepOf(random: Random, recordTombstones: (drop: string) => Promise<unknown>) {
  const [key, home, author] = [oneOf(random, KEYS), oneOf(random, HOMES), oneOf(random, AUTHORS)];
  const drop = `d${below(random, 30)}`;
  const steps: readonly (readonly [string, () => Promise<unknown>])[] = [
    [`add ${drop} to ${key}`, () => raw.zadd(key, 100 + below(random, 50), drop)],
    [`remove ${drop} from ${key}`, () => raw.zrem(key, drop)],
    [`delete ${drop}`, () => recordTombstones(drop)],
    [`follow ${author} in ${home}`, () => raw.sadd(pullsKeyOfHome(home), "~complete", author)],
    [`unfollow ${author} in ${home}`, () => raw.srem(pullsKeyOfHome(home), author)],
    [`${author} is pulled`, () => turn(author, "pulled")],
    [`${author} is pushed`, () => turn(author, "pushed")],
  ];
  const moved = oneOf(random, [key, TOMBSTONES_KEY, PULLED_KEY]);
  const rare: typeof steps = [
    [`move the slot of ${moved}`, () => moveAway(moved)],
    ["cut the listeners' connections", () => onEach((server) => server.call("CLIENT", "KILL", "TYPE", "pubsub"))],
    ["cut all connections", () => onEach((server) => server.call("CLIENT", "KILL", "TYPE", "normal"))],
  ];
  return below(random, 12) === 0 ? oneOf(random, rare) : oneOf(random, steps);
}

// Invariant 4.
test.each([
  [1, 1],
  [2, 1],
  [3, 2],
])(
  "history %i, %i clusters: a cached page is what the cluster has, whatever changes, moves or is cut off",
  async (seed, count) => {
    raw?.disconnect();
    const [client, writing] = await Promise.all([connect(count), connect(count)]);
    raw = writing;
    const random = seeded(seed);
    await onEach((server) => server.flushall());
    registry.clear();
    await raw.zadd(TOMBSTONES_KEY, 0, "~floor");
    for (const author of AUTHORS) await turn(author, "pulled");
    for (const home of HOMES) {
      await raw.hset(hiddenKeyOfHome(home), "~state", "complete");
      await raw.sadd(pullsKeyOfHome(home), "~complete");
    }
    for (const key of KEYS) await raw.zadd(key, 0, "~floor", 120, "d0", 130, "d1");
    const [scripts, plainScripts] = [createScripts(client), createScripts(raw)];
    const of = { channel: DELETIONS_CHANNEL, publisher: TOMBSTONES_KEY, log: silent };
    const tracking = trackChanges({ scripts, ...of });
    const cache = new PageCache({ changes: tracking, nodeOf: scripts.nodeOf, maxBytes: 1_000_000, ttlMs: 6_000_000 });
    const tombstones = startTombstoneCopy({ scripts, tracking, log: silent });
    const pulled = { copy: () => registry, refresh: async () => registry };
    const cached = adaptersOn(scripts, { maxEntries: 100, cache, tombstones }, pulled).store;
    const { store: plain, fenceStore } = adaptersOn(plainScripts, { maxEntries: 100 }, pulled);
    const fences = createFences({ store: fenceStore, readHistory: historyOf([]), log: silent });
    const shown = async (store: TimelineStore, key: string): Promise<unknown> => {
      const query = { key, direction: "older", above: undefined, below: undefined, count: 4 } as const;
      const page = await readPage({ store, fences }, key, query);
      return isIncomplete(page) ? "incomplete" : (page.entries as Entries).slice(0, 3).map(({ drop }) => drop);
    };
    /** Reads again while connections that were cut are not back. */
    const patiently = async (store: TimelineStore, key: string): Promise<unknown> => {
      let seen: unknown;
      const read = () =>
        shown(store, key).then(
          (drops) => (seen = drops),
          () => undefined,
        );
      await eventually(async () => (await read()) !== undefined, "the reader is answered", 20_000);
      return seen;
    };
    try {
      for (let at = 0; at < 300; at++) {
        if (at % 10 === 0) await eventually(() => KEYS.every((key) => cache.isOn(key)), "changes are followed", 20_000);
        if (at % 30 === 0)
          await eventually(
            async () => (await tombstones.upToDate()) !== undefined,
            "the tombstones are copied",
            20_000,
          );
        const [name, change] = stepOf(random, (drop) => fences.recordTombstones([{ drop, time: Date.now() }]));
        const some = [oneOf(random, HOMES), oneOf(random, HOMES)];
        const beside = some.map((key) => shown(cached, key).catch(() => undefined));
        await eventually(
          () =>
            change().then(
              () => true,
              () => false,
            ),
          name,
          20_000,
        );
        for (const key of some) {
          const seen = await patiently(cached, key);
          expect({ at, name, key, seen }).toEqual({ at, name, key, seen: await patiently(plain, key) });
        }
        await Promise.all(beside);
      }
      expect(cache.events.hit).toBeGreaterThan(100);
    } finally {
      await tombstones.close();
      await tracking.close();
      client.disconnect();
    }
  },
  120_000,
);
