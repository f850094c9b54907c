import { Cluster, Redis } from "ioredis";
import type { Broker } from "../../../src/sandbox/brokers/index.js";
import { privateNats, privateRedis } from "../../support/brokers.js";
import { startNatsCluster, startRedisCluster } from "../../support/clusters.js";
import { type Postgres, type PostgresOptions, startPostgres } from "../../support/postgres.js";
import { program, type Service, type ServiceOptions, startService } from "../../support/service.js";
import type { Stack } from "../../support/stack.js";
import { openStreams, type Streams } from "../../support/streams.js";
import { startUpstreams } from "../../support/upstreams.js";
import { World } from "../../support/world.js";
import type { Parameters, Result } from "./result.js";

export type Run = (parameters: Parameters, bench: Bench) => Promise<Result>;

export type Servers = Pick<Stack, "redis" | "redisServer" | "natsServer" | "streams" | "world" | "upstreams">;

/** Where a process of the service finds its servers. */
export type Addresses = {
  readonly redisServer: Pick<Broker, "url">;
  readonly natsServer: Pick<Broker, "url">;
  readonly upstreams: Servers["upstreams"];
  readonly world: World;
};

/** A rewrite of the append-only file, which takes a core and copies pages, would fall to one side of a comparison by chance. */
const NO_REWRITES = ["--auto-aof-rewrite-percentage", "0"];

/** Starts what a benchmark needs, and stops it in the end. */
export class Bench {
  readonly versions: Record<string, string> = { Node: process.versions.node };
  readonly #closes: (() => unknown)[] = [];

  /** `profile`: a folder into which processes of the service write profiles of their CPU when they end. */
  constructor(private readonly profile?: string) {}

  /** Leaves `close` to be called at the end, last first. */
  defer(close: () => unknown): void {
    this.#closes.push(close);
  }

  async redis({ appendonly = false } = {}): Promise<{ readonly redis: Redis; readonly redisServer: Broker }> {
    const redisServer = await privateRedis({ appendonly, extraArgs: NO_REWRITES });
    this.versions["Redis"] = redisServer.version;
    this.defer(() => redisServer.stop());
    const redis = new Redis(redisServer.url, { maxRetriesPerRequest: null });
    this.defer(() => redis.disconnect());
    return { redis, redisServer };
  }

  /** Three masters without replicas. They have an append-only file. */
  async redisCluster() {
    const { masters, urls, stop } = await startRedisCluster({ replicas: false, extraArgs: NO_REWRITES });
    this.defer(stop);
    const redis = new Cluster(urls.split(","));
    this.defer(() => redis.disconnect());
    return { redis, masters, redisServer: { url: urls } };
  }

  async nats(): Promise<{ readonly natsServer: Broker; readonly streams: Streams }> {
    const natsServer = await privateNats();
    this.versions["nats-server"] = natsServer.version;
    this.defer(() => natsServer.stop());
    const streams = await openStreams(natsServer.url);
    this.defer(() => streams.close());
    return { natsServer, streams };
  }

  async natsCluster() {
    const cluster = await startNatsCluster();
    this.defer(() => cluster.stop());
    const streams = await openStreams(cluster.urls);
    this.defer(() => streams.close());
    return { natsServer: { url: cluster.urls }, streams, cluster };
  }

  async postgres(options: PostgresOptions = {}): Promise<Postgres> {
    const server = await startPostgres({ fsync: true, ...options });
    this.versions["PostgreSQL"] = server.version;
    this.defer(() => server.stop());
    return server;
  }

  async servers(world = new World(), options: { readonly appendonly?: boolean } = {}): Promise<Servers> {
    const brokers = { ...(await this.redis(options)), ...(await this.nats()) };
    const upstreams = await startUpstreams(world);
    this.defer(() => upstreams.stop());
    return { ...brokers, world, upstreams };
  }

  /** A process of the built service. It finds nothing to fill the log with, which would cost what is measured. */
  async service(at: Addresses, options: Pick<ServiceOptions, "roles" | "env" | "command"> = {}): Promise<Service> {
    const { redisServer, natsServer, upstreams, world } = at;
    world.dateAll(0);
    const { usersAddress, postsAddress } = upstreams;
    const { command = [...program(options.env), "serve"], ...others } = options;
    const profiling = this.profile === undefined ? [] : ["--cpu-prof", "--cpu-prof-dir", this.profile];
    const service = await startService({
      ...{ redisUrl: redisServer.url, natsUrl: natsServer.url, usersAddress, postsAddress, ...others },
      command: [...profiling, ...command],
      // Homes that benchmarks fill have no copy of whom their users follow.
      env: { TIMELINE_LOG_LEVEL: "warn", TIMELINE_HOME_REPLIES: "all", ...options.env },
    });
    this.defer(() => service.stop());
    return service;
  }

  async close(): Promise<void> {
    for (const close of this.#closes.splice(0).reverse()) await close();
  }
}
