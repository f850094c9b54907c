import { afterAll, beforeAll, beforeEach } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { redisUrls } from "../../src/kernel/urls.js";
import { mastersOf, type RedisClient } from "../../src/platform/redis/clusters.js";
import { connected, connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { privateRedis } from "./brokers.js";
import { type RedisCluster, startRedisCluster, startRedisClusters } from "./clusters.js";

interface Servers {
  /** For REDIS_URL. */
  readonly urls: string;
  stop(): Promise<unknown>;
}

export const SERVERS = {
  "one server": async (): Promise<Servers> => {
    const { url, stop } = await privateRedis();
    return { urls: url, stop };
  },
  "a Redis Cluster": (): Promise<Servers> => startRedisCluster({ replicas: false }),
  "two Redis Clusters": (): Promise<Servers> => startRedisClusters(2),
};

/** A connection to servers, and our scripts on it. */
export interface ServersBench {
  readonly servers: Servers;
  readonly client: RedisClient;
  readonly scripts: Scripts;
  /** Where the servers are one. */
  readonly cluster: RedisCluster;
}

/** Starts servers for the tests of a block; they are empty before each. */
export function serversOf(name: keyof typeof SERVERS): ServersBench {
  const bench = {} as ServersBench;
  beforeAll(async () => {
    const servers = await SERVERS[name]();
    Object.assign(bench, { servers, cluster: servers });
    const client = connectRedis(redisUrls.parse(servers.urls), silent);
    await connected(client);
    Object.assign(bench, { client, scripts: createScripts(client) });
  });
  afterAll(async () => {
    bench.client?.disconnect();
    await bench.servers?.stop();
  });
  beforeEach(() => Promise.all(mastersOf(bench.client).map((node) => node.flushall())));
  return bench;
}
