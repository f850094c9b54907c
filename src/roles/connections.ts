import { hostname } from "node:os";
import type { JetStreamManager, NatsConnection } from "nats";
import { createReadAcked, openFences } from "../consistency/index.js";
import type { Fences } from "../contracts/fences.js";
import { oneLine } from "../kernel/errors.js";
import { createInTurn, type InTurn } from "../kernel/in-turn.js";
import type { Logger } from "../kernel/logger.js";
import { createOldestFirst, type OldestFirst } from "../kernel/oldest-first.js";
import { openUpstreamChannels, type UpstreamChannels, type Upstreams } from "../platform/grpc/upstreams.js";
import { connectNats } from "../platform/nats/connect.js";
import { createPublish, type Publish } from "../platform/nats/publish.js";
import { applyTopology, TopologyRefusal } from "../platform/nats/topology.js";
import { type TopologyWatch, watchTopology } from "../platform/nats/watch-topology.js";
import { followClock } from "../platform/redis/clock.js";
import { connectRedis } from "../platform/redis/connect.js";
import { createFenced, type Fenced } from "../platform/redis/fenced.js";
import { createScripts, type Scripts } from "../platform/redis/scripts.js";
import type { TimelineConfig } from "../timeline/config.js";
import type { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import { type NatsConfig, UPSTREAM_VARIABLES, type UpstreamsConfig } from "./config/connections.js";
import { type EvictionWatch, watchEviction } from "./eviction.js";
import { persist } from "./persist.js";
import { startRedisHealth } from "./redis-health.js";
import { VERSION } from "./version.js";

/** What every role works with, opened once a process. */
export interface Connections {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly topology: TopologyWatch;
  readonly eviction: EvictionWatch;
  /** Nobody asks the posts service yet: it may be this process, which does not serve before its connections are open. */
  readonly retention: ReturnType<typeof openFences>["retention"];
  readonly fences: Fences;
  readonly upstreams: OpenUpstreams;
  readonly readLimits: ReadLimits;
  readonly podName: string;
}

/** Who calls the upstreams. What is known of their state from one's calls says nothing to another. */
type Caller = "reads" | "fanout" | "reconcile" | "operator";

/** The upstreams over channels that are opened when first asked for, and shared. */
export type OpenUpstreams = (caller: Caller) => Upstreams;

/** Bounds on rebuilds and on the calls of reads to the upstreams, one each for the whole process. */
export interface ReadLimits {
  readonly inTurn: InTurn;
  readonly calls: OldestFirst;
}

/** How a step of the start is reported while it waits. */
type Waiting = (what: string | undefined) => void;

/** Opens the connections, waiting for servers that are not there yet. */
export async function openConnections(
  config: Config,
  log: Logger,
  how: { closers: Closers; waiting: Waiting },
): Promise<Connections> {
  const { closers, waiting } = how;
  const podName = config.process.podName ?? `${hostname()}-${process.pid}`;
  const redis = connectRedis(config.redis.urls, log);
  closers.add("Redis", () => redis.disconnect());
  const scripts = createScripts(redis);
  const clock = followClock(scripts);
  closers.add("Redis clock", () => clock.close());
  const health = startRedisHealth(redis, { log });
  closers.add("Redis health", () => health.close());
  waiting("Redis");
  await persist(() => clock.sample(), log, "Redis is not there yet");
  const allowed = config.redis.allowEviction;
  const eviction = await watchEviction(redis, { allowed, log });
  closers.add("Redis eviction", () => eviction.close());
  waiting("NATS");
  const nats = await connectNats(natsOptions(config.nats, podName), log);
  closers.add("NATS", () => nats.drain().catch((error) => log.warn({ error: oneLine(error) }, "NATS was not drained")));
  waiting("JetStream");
  const fenced = createFenced(scripts, clock);
  const apply = createApplyTopology(config.nats, createReadAcked({ scripts, fenced }), log);
  await applyWhenPossible(nats, apply, log);
  const topology = await watchTopology({ connection: nats, apply, log });
  closers.add("topology", () => topology.close());
  waiting(undefined);
  const upstreams = upstreamsOnDemand(config.upstreams, closers);
  const { fences, retention } = openFences({ scripts, fenced, nats, upstreams, log });
  return {
    scripts,
    fenced,
    nats,
    publish: createPublish(nats.jetstream(), topology.look),
    topology,
    eviction,
    retention,
    fences,
    upstreams,
    readLimits: createReadLimits(config.timeline),
    podName,
  };
}

/** How NATS is reached, as configured. */
export const natsOptions = (config: NatsConfig, podName: string) => ({
  ...config,
  name: `avion-timeline/${VERSION} ${podName}`,
});

/** The variables that name the upstreams and are not set. */
export function missingUpstreams(config: UpstreamsConfig): string[] {
  const { userServiceAddr, postServiceAddr } = UPSTREAM_VARIABLES;
  return [
    ...(config.userServiceAddr === undefined ? [userServiceAddr.name] : []),
    ...(config.postServiceAddr === undefined ? [postServiceAddr.name] : []),
  ];
}

/** The upstreams as configured, opened when they are first asked for. */
export function upstreamsOnDemand(config: UpstreamsConfig, closers: Closers): OpenUpstreams {
  let channels: UpstreamChannels | undefined;
  const callers = new Map<Caller, Upstreams>();
  // Registered before any role is, so that they outlive what the roles have in flight.
  closers.add("upstreams", () => channels?.close());
  return (caller) => {
    channels ??= openChannels(config);
    const upstreams = callers.get(caller) ?? channels.upstreams();
    callers.set(caller, upstreams);
    return upstreams;
  };
}

function openChannels(config: UpstreamsConfig): UpstreamChannels {
  return openUpstreamChannels({
    userServiceAddr: config.userServiceAddr as string,
    postServiceAddr: config.postServiceAddr as string,
    tls: config,
  });
}

type ApplyTopology = (manager: JetStreamManager) => Promise<void>;

function createApplyTopology(
  config: NatsConfig,
  resumeAfter: ReturnType<typeof createReadAcked>,
  log: Logger,
): ApplyTopology {
  const options = {
    replicas: config.replicas,
    storageScale: config.storageScale,
    ackWaitMs: config.ackWaitMs,
    resumeAfter,
  };
  return (manager) => applyTopology(manager, options, log);
}

/** The bounds as configured. */
export function createReadLimits(config: TimelineConfig): ReadLimits {
  return {
    inTurn: createInTurn({ atOnce: config.rebuildConcurrency, waiting: config.rebuildQueue }),
    calls: createOldestFirst(config.upstreamConcurrency),
  };
}

/** A server without JetStream, or without a leader yet, is waited for; a refusal of our declarations is not. */
async function applyWhenPossible(nats: NatsConnection, apply: ApplyTopology, log: Logger): Promise<void> {
  let refusal: Error | undefined;
  await persist(
    async () => {
      const manager = await nats.jetstreamManager();
      try {
        await apply(manager);
      } catch (error) {
        if (!(error instanceof TopologyRefusal)) throw error;
        refusal = error;
      }
    },
    log,
    "JetStream is not there yet",
  );
  if (refusal) throw refusal;
}
