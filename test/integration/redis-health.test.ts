import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import { type RedisCluster, startRedisCluster } from "../support/clusters.js";
import { becomes } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { type Scraped, startScraping } from "../support/scrape.js";

const EVERY_MS = 100;
type StartRedisHealth = typeof import("../../src/platform/redis/health.js").startRedisHealth;

let metrics: Scraped;
let startRedisHealth: StartRedisHealth;

beforeAll(async () => {
  metrics = await startScraping();
  ({ startRedisHealth } = await import("../../src/platform/redis/health.js"));
});
afterAll(() => metrics.close());

const value = (name: string, labels: Record<string, string>) => metrics.value(name, labels);
const shows = (name: string, labels: Record<string, string>, wanted: unknown) =>
  becomes(async () => expect(await value(name, labels)).toEqual(wanted));

async function withRedis(
  options: Parameters<typeof openRedis>[0],
  work: (bench: RedisBench, node: string) => Promise<void>,
): Promise<void> {
  const bench = await openRedis(options);
  const health = startRedisHealth(bench.client, { log: silent, everyMs: EVERY_MS });
  try {
    await work(bench, `127.0.0.1:${bench.broker.port}`);
  } finally {
    await health.close();
    await bench.close();
  }
}

test("memory, evictions, persistence and connections of a Redis are exported, by host and port", async () => {
  await withRedis({ appendonly: true }, async ({ raw }, node) => {
    await shows("timeline_redis_up", { node }, 1);
    expect(await value("timeline_redis_used_memory_bytes", { node })).toBeGreaterThan(100_000);
    expect(await value("timeline_redis_system_memory_bytes", { node })).toBeGreaterThan(100_000);
    expect(await value("timeline_redis_maxmemory_bytes", { node })).toBe(0);
    expect(await value("timeline_redis_loading", { node })).toBe(0);
    expect(await value("timeline_redis_connected_replicas", { node })).toBe(0);
    expect(await value("timeline_redis_rejected_connections", { node })).toBe(0);
    for (const kind of ["rdb", "aof"]) await shows("timeline_redis_persistence_ok", { node, kind }, 1);

    await raw.config("SET", "maxmemory", "4mb");
    await raw.config("SET", "maxmemory-policy", "allkeys-random");
    await shows("timeline_redis_maxmemory_bytes", { node }, 4 * 1024 * 1024);
    for (let key = 0; key < 100; key++) await raw.set(`key-${key}`, "x".repeat(100_000));
    await becomes(async () => expect(await value("timeline_redis_evicted_keys", { node })).toBeGreaterThan(0));

    await raw.config("SET", "maxmemory", "0");
    // A snapshot cannot take the place of a folder.
    const [, folder] = (await raw.config("GET", "dir")) as [string, string];
    await mkdir(join(folder, "dump.rdb"));
    await raw.bgsave();
    await shows("timeline_redis_persistence_ok", { node, kind: "rdb" }, 0);
  });
});

test("a Redis that is unavailable is down, and its other gauges show no old value", async () => {
  await withRedis({ appendonly: true }, async ({ broker }, node) => {
    await shows("timeline_redis_up", { node }, 1);
    broker.kill("SIGKILL");
    await broker.exited;
    await shows("timeline_redis_up", { node }, 0);
    expect(await value("timeline_redis_used_memory_bytes", { node })).toBeNaN();
    const again = await startRedis({ dir: broker.dir, port: broker.port, appendonly: true });
    try {
      await shows("timeline_redis_up", { node }, 1);
      expect(await value("timeline_redis_used_memory_bytes", { node })).toBeGreaterThan(0);
    } finally {
      await again.stop();
    }
  });
});

test("a Redis that forbids INFO is up", async () => {
  await withRedis({}, async ({ raw }, node) => {
    await shows("timeline_redis_up", { node }, 1);
    await raw.acl("SETUSER", "default", "-info");
    await becomes(async () => expect(await value("timeline_redis_used_memory_bytes", { node })).toBeNaN());
    await shows("timeline_redis_up", { node }, 1);
  });
});

test("of a cluster each master is asked by itself", async () => {
  const cluster: RedisCluster = await startRedisCluster({ replicas: false });
  const client = connectRedis(cluster.urls.split(","), silent);
  const health = startRedisHealth(client, { log: silent, everyMs: EVERY_MS });
  try {
    const nodes = cluster.masters.map(({ port }) => `127.0.0.1:${port}`);
    for (const node of nodes) await shows("timeline_redis_up", { node }, 1);
    cluster.masters[1]?.kill("SIGKILL");
    await shows("timeline_redis_up", { node: nodes[1] as string }, 0);
    await shows("timeline_redis_used_memory_bytes", { node: nodes[1] as string }, Number.NaN);
    expect(await value("timeline_redis_up", { node: nodes[0] as string })).toBe(1);
    expect(await value("timeline_redis_used_memory_bytes", { node: nodes[2] as string })).toBeGreaterThan(0);
  } finally {
    await health.close();
    client.disconnect();
    await cluster.stop();
  }
});
