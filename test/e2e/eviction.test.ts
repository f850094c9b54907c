import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import type { Broker } from "../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { runMain, startService } from "../support/service.js";
import { runs, slowTest } from "../support/suite.js";
import { startUpstreams, type Upstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

let redis: Broker;
let nats: Broker;
let upstreams: Upstreams;
let raw: Redis;
beforeAll(async () => {
  [redis, nats, upstreams] = await Promise.all([privateRedis(), privateNats(), startUpstreams(new World())]);
  raw = new Redis(redis.url);
});
afterAll(async () => {
  raw?.disconnect();
  await upstreams?.stop();
  await nats?.stop();
  await redis?.stop();
});

const environment = () => ({
  ...{ REDIS_URL: redis.url, NATS_URL: nats.url, TIMELINE_ROLES: "fanout,api" },
  ...{ TIMELINE_USER_SERVICE_ADDR: upstreams.usersAddress, TIMELINE_POST_SERVICE_ADDR: upstreams.postsAddress },
});
const start = (env: Readonly<Record<string, string>> = {}) =>
  startService({
    ...{ redisUrl: redis.url, natsUrl: nats.url, env },
    ...{ usersAddress: upstreams.usersAddress, postsAddress: upstreams.postsAddress },
  });

const POLICIES = [...(runs.quick ? ["volatile-lru"] : []), ...(runs.slow ? ["volatile-ttl", "allkeys-lfu"] : [])];

// Invariant 4.
test.each(POLICIES)(
  "with maxmemory-policy %s the start is refused with code 2 and doctor names a fault; an explicit variable allows it",
  async (policy) => {
    await raw.config("SET", "maxmemory-policy", policy);
    const refused = runMain(["serve"], {
      ...environment(),
      ...{ TIMELINE_HTTP_ADDR: "127.0.0.1:0", TIMELINE_GRPC_ADDR: "127.0.0.1:0" },
    });
    expect((await refused.exited).code).toBe(2);
    expect(refused.logs()).toContain(`maxmemory-policy ${policy}`);
    const found = runMain(["doctor", "--json"], environment());
    expect((await found.exited).code).toBe(1);
    expect(found.logs()).toMatch(new RegExp(`"state":"fault","says":"maxmemory-policy ${policy}"`));
    const allowed = runMain(["doctor", "--json"], { ...environment(), TIMELINE_REDIS_ALLOW_EVICTION: "true" });
    expect((await allowed.exited).code).toBe(0);
    expect(allowed.logs()).toContain("TIMELINE_REDIS_ALLOW_EVICTION");
    const service = await start({ TIMELINE_REDIS_ALLOW_EVICTION: "true" });
    // Its output is complete once it has ended.
    await service.stop();
    expect(service.logs()).toContain("Redis may evict keys, as TIMELINE_REDIS_ALLOW_EVICTION allows");
  },
);

// Invariant 4.
slowTest(
  "a policy changed while the service runs shows as not ready, until it is set right",
  async () => {
    await raw.config("SET", "maxmemory-policy", "noeviction");
    const service = await start();
    const status = async (): Promise<number> => (await fetch(`${service.httpUrl}/readyz`)).status;
    expect(await status()).toBe(200);
    await raw.config("SET", "maxmemory-policy", "volatile-lru");
    await eventually(async () => (await status()) === 503, "it is not ready", 20_000);
    expect(await (await fetch(`${service.httpUrl}/readyz`)).text()).toContain("volatile-lru");
    await raw.config("SET", "maxmemory-policy", "noeviction");
    await eventually(async () => (await status()) === 200, "it is ready again", 20_000);
    await service.stop();
  },
  60_000,
);
