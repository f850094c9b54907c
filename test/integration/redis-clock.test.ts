import { afterEach, expect } from "@jest/globals";
import type { Cluster, Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { followClock, type RedisClock } from "../../src/platform/redis/clock.js";
import type { RedisClient } from "../../src/platform/redis/clusters.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { createFenced, type Fenced } from "../../src/state/fenced.redis.js";

import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { eventually } from "../support/eventually.js";
import { lua } from "../support/lua.js";
import { openRedis } from "../support/redis.js";
import { quickTest, slowTest } from "../support/suite.js";

const AHEAD_MS = 40_000;
const closes: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closes.splice(0).reverse()) await close();
});

interface Scene {
  readonly client: RedisClient;
  readonly scripts: Scripts;
  readonly clock: RedisClock;
  readonly fenced: Fenced;
}

type Ask = NonNullable<NonNullable<Parameters<typeof followClock>[1]>["ask"]>;

async function sceneOn(urls: readonly string[], ask?: Ask): Promise<Scene> {
  const client = connectRedis(urls, silent);
  closes.push(() => client.disconnect());
  await eventually(() => client.status === "ready", "Redis is connected");
  const scripts = createScripts(client);
  const clock = followClock(scripts, ask && { ask });
  closes.push(() => clock.close());
  return { client, scripts, clock, fenced: createFenced(scripts, clock) };
}

/** Returns a function that tells how far the clock is from one that is ahead of ours, beyond what the slowest answer explains. */
function comparing(clock: RedisClock) {
  let slowestMs = 0;
  return async (key: string, aheadMs: number): Promise<number> => {
    const asked = performance.now();
    const off = (await clock.now(key)) - Date.now() - aheadMs;
    slowestMs = Math.max(slowestMs, performance.now() - asked);
    return Math.abs(off) - slowestMs;
  };
}

async function cluster(options: Parameters<typeof startRedisCluster>[0]): Promise<RedisCluster> {
  const started = await startRedisCluster(options);
  closes.push(() => started.stop());
  return started;
}

/** Keys on each of the three masters, whose slots are thirds. */
const KEYS = ["timeline:home:a", "timeline:home:b", "timeline:home:c", "timeline:home:d", "timeline:home:e"];

const masterOf = async (client: RedisClient, key: string): Promise<number> => {
  const slot = await (client as Cluster).cluster("KEYSLOT", key);
  return Number((client as Cluster).slots[slot]?.[0]?.split(":").at(-1));
};

quickTest("the clock follows the server's, not ours, and is asked anew after the connection was lost", async () => {
  const bench = await openRedis();
  closes.push(() => bench.close());
  let ahead = AHEAD_MS;
  const { client, clock } = await sceneOn([bench.broker.url], async () => [(Date.now() + ahead) / 1_000, 0]);
  const offBy = comparing(clock);
  expect(await offBy("k", AHEAD_MS)).toBeLessThan(500);
  ahead = -AHEAD_MS;
  const reconnected = new Promise((resolve) => (client as Redis).once("close", () => client.once("ready", resolve)));
  await bench.raw.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
  await reconnected;
  expect(await offBy("k", -AHEAD_MS)).toBeLessThan(500);
});

// Invariant 2.
quickTest("a step of this machine's clock changes nothing", async () => {
  const bench = await openRedis();
  closes.push(() => bench.close());
  const { clock } = await sceneOn([bench.broker.url]);
  const before = await clock.now("k");
  const now = Date.now;
  closes.push(() => {
    Date.now = now;
  });
  Date.now = () => now() + AHEAD_MS;
  expect(Math.abs((await clock.now("k")) - before)).toBeLessThan(AHEAD_MS / 2);
});

quickTest("in a cluster each key has the clock of the master that holds it", async () => {
  const { urls, masters } = await cluster({ replicas: false });
  const ports = masters.map(({ port }) => port);
  const shiftOf = (port: number): number => ports.indexOf(port) * AHEAD_MS;
  const asked: number[] = [];
  const { client, clock } = await sceneOn(urls.split(","), async ({ options }) => {
    asked.push(options.port as number);
    return [(Date.now() + shiftOf(options.port as number)) / 1_000, 0];
  });
  const seen = new Set<number>();
  const offBy = comparing(clock);
  for (const key of KEYS) {
    const port = await masterOf(client, key);
    seen.add(port);
    expect(await offBy(key, shiftOf(port))).toBeLessThan(500);
  }
  expect(seen).toEqual(new Set(ports));
  expect(new Set(asked)).toEqual(new Set(ports));
  expect(asked).toHaveLength(ports.length);
});

// Invariant 2.
slowTest(
  "a master that takes over is asked for its time before it is written to under a deadline",
  async () => {
    const { urls, masters } = await cluster({ replicas: true });
    const asked: number[] = [];
    const { client, clock } = await sceneOn(urls.split(","), async (server) => {
      asked.push(server.options.port as number);
      return server.time();
    });
    await clock.sample();
    const key = KEYS[0] as string;
    const before = await masterOf(client, key);
    masters.find(({ port }) => port === before)?.kill("SIGKILL");
    await eventually(
      async () => {
        await client.get(key).catch(() => undefined);
        return (await masterOf(client, key)) !== before;
      },
      "a replica takes over",
      30_000,
    );
    const after = await masterOf(client, key);
    expect(asked).not.toContain(after);
    await clock.now(key);
    expect(asked).toContain(after);
  },
  60_000,
);

// Invariant 2.
quickTest("in a cluster the deadline of a write goes by the clock of the master that is written to", async () => {
  const { urls, masters } = await cluster({ replicas: false });
  const slow = masters[1]?.port;
  const { client, fenced } = await sceneOn(urls.split(","), async ({ options }) => [
    (Date.now() - (options.port === slow ? AHEAD_MS : 0)) / 1_000,
    0,
  ]);
  for (const key of KEYS) {
    const writing = fenced.groups({
      ...{ script: lua("add-entries"), prefix: "", before: [10, 9, 0, "0", "homes"] },
      groups: [{ keys: [key], items: [[1, "d1", "eve"]] }],
    });
    const reply = await writing.catch((error: Error) => error.message);
    // By the clock we take that server to have, the deadline is long over there.
    if ((await masterOf(client, key)) === slow) expect(reply).toContain("LATE");
    else expect(reply).toEqual(expect.any(Number));
  }
});
