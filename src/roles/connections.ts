import { hostname } from "node:os";
import type { JetStreamManager, NatsConnection } from "nats";
import { createReadAcked, openFenceSources, openRedisOfLog } from "../consistency/index.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { databaseOf, namesCluster, namesSentinels } from "../kernel/urls.js";
import { ConfigError } from "../kernel/variables.js";
import { VERSION } from "../kernel/version.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublisher, type Publisher } from "../platform/nats/publish.js";
import { applyTopology, TopologyRefusal } from "../platform/nats/topology.js";
import { type TopologyWatch, watchTopology } from "../platform/nats/watch-topology.js";
import { createSharedClock, followClock } from "../platform/redis/clock.js";
import type { RedisClient } from "../platform/redis/clusters.js";
import { connected, connectRedis } from "../platform/redis/connect.js";
import { type EvictionWatch, watchEviction } from "../platform/redis/eviction.js";
import { startRedisHealth } from "../platform/redis/health.js";
import { createScripts } from "../platform/redis/scripts.js";
import { servesCluster } from "../platform/redis/servers.js";
import { Refusal } from "../platform/refusals.js";
import { createReadLimits, type ReadBounds, type ReadLimits } from "../reads/index.js";
import {
  checkPlaces,
  checkRights,
  createRightsWatch,
  keepPlaces,
  openRedisState,
  openState,
  type State,
  type StateWraps,
} from "../state/index.js";
import { openUpstreamChannels, type UpstreamChannels, type Upstreams } from "../upstreams/upstreams.grpc.js";
import { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import { type NatsConfig, type RedisConfig, UPSTREAM_VARIABLES, type UpstreamsConfig } from "./config/connections.js";

export interface Connections extends Publisher {
  readonly redis: RedisClient;
  readonly nats: NatsConnection;
  readonly state: State;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly upstreams: OpenUpstreams;
  readonly readLimits: ReadLimits;
}

export interface ServiceConnections extends Connections {
  readonly topology: TopologyWatch;
  readonly eviction: EvictionWatch;
  /** Returns the reason why the clock of this process is too far from that of Redis. */
  readonly clockFault: () => string | undefined;
  /** The Redis has this name; undefined while nobody has given it one. */
  readonly redisOfLog: string | undefined;
  readonly podName: string;
}

/** Each caller of the upstreams keeps its own record of their failures. */
type Caller = "reads" | "fanout" | "reconcile" | "operator" | "gateway";

/** The first call opens the channels, which all callers share. */
type OpenUpstreams = (caller: Caller) => Upstreams;

type OnWaiting = (server: string | undefined) => void;

/**
 * Opens the connections of a service; waits for servers that are not available yet.
 *
 * @param waiting called with the server that is waited for, at the end with undefined
 */
export async function openConnections(
  config: Config,
  log: Logger,
  { closers, waiting, ...others }: { readonly closers: Closers; readonly waiting: OnWaiting } & Others,
): Promise<ServiceConnections> {
  const podName = config.process.podName ?? `${hostname()}-${process.pid}`;
  waiting("Redis");
  const redis = await openRedis(config.redis, log, {
    closers,
    answer: async (opened, redisClosers) => {
      const { client } = opened.scripts;
      const health = startRedisHealth(client, { log });
      redisClosers.add("Redis health", () => health.close());
      await connected(client);
      const permitted = () => checkRights(client).then(() => firstAnswer(opened));
      return retryUntilDone(permitted, log, "Redis is not available yet; the start waits");
    },
  });
  const eviction = await watchEviction(redis.scripts.client, { allowed: config.redis.allowEviction, log });
  closers.add("Redis eviction", () => eviction.close());
  const places = keepPlaces(redis.scripts.client, { log });
  closers.add("Redis Clusters", () => places.close());
  waiting("NATS");
  const nats = await connectNats(natsOptions(config.nats, podName), log);
  closers.add("NATS", () => nats.drain().catch((error) => log.warn({ error: oneLine(error) }, "NATS was not drained")));
  waiting("JetStream");
  const resumeAfter = createReadAcked(redis);
  const apply = (manager: JetStreamManager) => applyTopology(manager, { ...config.nats, resumeAfter }, log);
  const applyFirst = async () => apply(await nats.jetstreamManager());
  await retryUntilDone(
    applyFirst,
    log,
    "JetStream is not available yet; the start waits",
    (error) => !(error instanceof TopologyRefusal),
  );
  const mayBind = config.process.roles.includes("fanout");
  const redisOfLog = await retryUntilDone(
    () => openRedisOfLog({ ...redis, nats }, { mayBind }),
    log,
    "the start waits: it cannot be read yet whether this Redis and this log belong together",
    (error) => !(error instanceof ConfigError),
  );
  const { notifyParts } = config.nats;
  const topology = await watchTopology({ connection: nats, apply, notifyParts, log });
  closers.add("topology", () => topology.close());
  waiting(undefined);
  const publisher = createPublisher(nats, { noStream: () => topology.check(), notifyParts });
  const upstreams = upstreamsOnDemand(config.upstreams, closers, log);
  const connections = withState(config, { redis, nats, ...publisher, upstreams }, log, others);
  return { ...connections, topology, eviction, clockFault: redis.clockFault, redisOfLog, podName };
}

type OpenRedis = ReturnType<typeof openClient>;

interface RedisOpening {
  readonly closers: Closers;
  /** Waits for Redis, and tells whether it is a cluster. `redisClosers` are run if it has to be opened again as one. */
  readonly answer: (redis: OpenRedis, redisClosers: Closers) => Promise<boolean>;
}

/** Opens Redis and its clock. Only its server knows whether one URL names a node of a cluster. */
export async function openRedis(
  { urls }: Pick<RedisConfig, "urls">,
  log: Logger,
  { closers, answer }: RedisOpening,
): Promise<OpenRedis> {
  for (let cluster = namesCluster(urls); ; cluster = true) {
    const redisClosers = new Closers();
    closers.add("Redis", async (graceMs) => void (await redisClosers.closeAll(log, graceMs)));
    const redis = openClient(urls, log, { closers: redisClosers, cluster });
    if ((await answer(redis, redisClosers)) === cluster) return redis;
    if (namesSentinels(urls))
      throw new Error("REDIS_URL names sentinels, and their master is a node of a Redis Cluster");
    if (databaseOf(urls) > 0) throw new Error("REDIS_URL names a database: a Redis Cluster has only database 0");
    log.info({}, "Redis is a node of a cluster: the whole cluster is used");
    await redisClosers.closeAll(log);
  }
}

/**
 * Reads the clock of Redis, before the first write. Returns whether it is a cluster. `onlyLook`: writes nothing.
 *
 * @throws a Refusal if several Redis Clusters are named otherwise than before
 */
export async function firstAnswer(
  { scripts, clock }: Pick<OpenRedis, "scripts" | "clock">,
  { onlyLook = false } = {},
): Promise<boolean> {
  await clock.sample();
  await checkPlaces(scripts.client, { onlyLook });
  return servesCluster(scripts);
}

/** Returns at once: commands fail until Redis answers. */
function openClient(
  urls: readonly string[],
  log: Logger,
  { closers, cluster }: { closers: Closers; cluster: boolean },
) {
  const client = connectRedis(urls, log, { cluster });
  closers.add("Redis", () => client.disconnect());
  const scripts = createScripts(client, log, createRightsWatch(client, log).lost);
  const sharedClock = createSharedClock(log);
  const clock = followClock(scripts, sharedClock);
  closers.add("Redis clock", () => clock.close());
  return { scripts, clock, clockFault: sharedClock.fault, state: openRedisState(scripts, clock) };
}

interface Others {
  readonly reads?: Partial<ReadBounds> | undefined;
  readonly stateWraps?: StateWraps | undefined;
}

type Opened = Pick<Connections, "nats" | "upstreams" | keyof Publisher> & { readonly redis: OpenRedis };

/** Opens the state on connections. */
export function withState(
  config: Config,
  { redis, ...opened }: Opened,
  log: Logger,
  { reads, stateWraps }: Others = {},
): Connections {
  const state = openState({ ...redis, ...opened, ...openFenceSources(opened), config, log }, stateWraps);
  const readLimits = createReadLimits(config.timeline, reads);
  return { ...opened, redis: redis.scripts.client, state, storeDeadLetter: state.storeDeadLetter, readLimits };
}

export const natsOptions = (config: NatsConfig, name: string) => ({
  ...config,
  name: `avion-timeline/${VERSION} ${name}`,
});

/** Returns the variables that a process needs to call the upstreams, and lacks. */
export const missingUpstreams = (config: UpstreamsConfig): string[] =>
  (["userServiceAddr", "postServiceAddr"] as const)
    .filter((key) => config[key] === undefined)
    .map((key) => UPSTREAM_VARIABLES[key].name);

export function upstreamsOnDemand(config: UpstreamsConfig, closers: Closers, log: Logger): OpenUpstreams {
  let channels: UpstreamChannels | undefined;
  const callers = new Map<Caller, Upstreams>();
  // The upstreams are registered before the roles, and so are closed after them.
  closers.add("upstreams", () => channels?.close());
  return (caller) => {
    channels ??= openUpstreamChannels({
      userServiceAddr: config.userServiceAddr as string,
      postServiceAddr: config.postServiceAddr as string,
      tls: config.tls,
      log,
    });
    const upstreams = callers.get(caller) ?? channels.upstreams();
    callers.set(caller, upstreams);
    return upstreams;
  };
}

/** @throws a Refusal, which only an operator can resolve, and errors that are not `retryable` */
export async function retryUntilDone<Result>(
  work: () => Promise<Result>,
  log: Logger,
  message: string,
  retryable: (error: unknown) => boolean = () => true,
): Promise<Result> {
  for (let tries = 0; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refusal || !retryable(error)) throw error;
      if (tries === 0) log.warn({ error: oneLine(error) }, message);
      await pause(SECOND / 4);
    }
  }
}
