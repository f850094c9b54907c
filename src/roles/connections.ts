import { hostname } from "node:os";
import type { JetStreamManager, NatsConnection } from "nats";
import { createReadAcked, openFences } from "../consistency/index.js";
import type { Fences } from "../contracts/fences.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { openUpstreamChannels, type UpstreamChannels, type Upstreams } from "../platform/grpc/upstreams.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublisher, type Publisher } from "../platform/nats/publish.js";
import { applyTopology, TopologyRefusal } from "../platform/nats/topology.js";
import { type TopologyWatch, watchTopology } from "../platform/nats/watch-topology.js";
import { followClock, type RedisClock } from "../platform/redis/clock.js";
import { connected, connectRedis } from "../platform/redis/connect.js";
import { type EvictionWatch, watchEviction } from "../platform/redis/eviction.js";
import { createFenced, type Fenced } from "../platform/redis/fenced.js";
import { startRedisHealth } from "../platform/redis/health.js";
import { createScripts, type Scripts } from "../platform/redis/scripts.js";
import { Refusal } from "../platform/refusals.js";
import { openPulled, type Registry } from "../pull/index.js";
import { createReadLimits, type ReadLimits } from "../timeline/index.js";
import type { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import { type NatsConfig, type RedisConfig, UPSTREAM_VARIABLES, type UpstreamsConfig } from "./config/connections.js";
import { VERSION } from "./version.js";

export interface Connections extends Publisher {
  readonly scripts: Scripts;
  readonly clock: RedisClock;
  readonly fenced: Fenced;
  readonly nats: NatsConnection;
  readonly retention: ReturnType<typeof openFences>["retention"];
  readonly fences: Fences;
  readonly pulled: Registry;
  readonly upstreams: OpenUpstreams;
  readonly readLimits: ReadLimits;
}

export interface ServiceConnections extends Connections {
  readonly topology: TopologyWatch;
  readonly eviction: EvictionWatch;
  readonly podName: string;
}

/** Each caller of the upstreams keeps its own record of their failures. */
type Caller = "reads" | "fanout" | "reconcile" | "operator";

/** The upstreams over channels that are opened at the first call and shared. */
type OpenUpstreams = (caller: Caller) => Upstreams;

/**
 * Opens the connections of a service; waits for servers that are not available yet.
 *
 * @param waiting called with the server that is waited for, at the end with undefined
 */
export async function openConnections(
  config: Pick<Config, "process" | "redis" | "nats" | "upstreams" | "timeline" | "fanout">,
  log: Logger,
  { closers, waiting }: { closers: Closers; waiting: (server: string | undefined) => void },
): Promise<ServiceConnections> {
  const podName = config.process.podName ?? `${hostname()}-${process.pid}`;
  const redis = openRedis(config.redis, log, closers);
  const { client } = redis.scripts;
  const health = startRedisHealth(client, { log });
  closers.add("Redis health", () => health.close());
  waiting("Redis");
  await connected(client);
  await retryUntilDone(() => redis.clock.sample(), log, "Redis is not available yet; the start waits");
  const eviction = await watchEviction(client, { allowed: config.redis.allowEviction, log });
  closers.add("Redis eviction", () => eviction.close());
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
  const topology = await watchTopology({ connection: nats, apply, log });
  closers.add("topology", () => topology.close());
  waiting(undefined);
  const upstreams = upstreamsOnDemand(config.upstreams, closers, log);
  const opened = { ...redis, nats, ...createPublisher(nats, { noStream: () => topology.check() }), upstreams };
  return { ...withFences(config, opened, log), topology, eviction, podName };
}

/** Redis and its clock, which is read before the first write. It returns at once: commands fail until Redis answers. */
export function openRedis({ urls }: Pick<RedisConfig, "urls">, log: Logger, closers: Closers) {
  const client = connectRedis(urls, log);
  closers.add("Redis", () => client.disconnect());
  const scripts = createScripts(client);
  const clock = followClock(scripts);
  closers.add("Redis clock", () => clock.close());
  return { scripts, clock, fenced: createFenced(scripts, clock) };
}

/**
 * Adds fences, read limits and the registry of pulled authors. The retention is not read yet: this process may be the
 * posts service itself.
 */
export const withFences = (
  config: Pick<Config, "timeline" | "fanout">,
  opened: Pick<Connections, "scripts" | "clock" | "fenced" | "nats" | keyof Publisher | "upstreams">,
  log: Logger,
): Connections => ({
  ...opened,
  ...openFences({ ...opened, log }),
  readLimits: createReadLimits(config.timeline),
  pulled: openPulled(opened.scripts, opened.clock, config.fanout),
});

export const natsOptions = (config: NatsConfig, name: string) => ({
  ...config,
  name: `avion-timeline/${VERSION} ${name}`,
});

/** Variables that a process needs to call the upstreams, and lacks. */
export const missingUpstreams = (config: UpstreamsConfig): string[] =>
  (["userServiceAddr", "postServiceAddr"] as const)
    .filter((key) => config[key] === undefined)
    .map((key) => UPSTREAM_VARIABLES[key].name);

export function upstreamsOnDemand(config: UpstreamsConfig, closers: Closers, log: Logger): OpenUpstreams {
  let channels: UpstreamChannels | undefined;
  const callers = new Map<Caller, Upstreams>();
  // Registered before the roles, and so closed after them.
  closers.add("upstreams", () => channels?.close());
  return (caller) => {
    channels ??= openUpstreamChannels({
      userServiceAddr: config.userServiceAddr as string,
      postServiceAddr: config.postServiceAddr as string,
      tls: config,
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
