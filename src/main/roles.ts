import { startBridge } from "../bridge/bridge.js";
import { createChannels } from "../bridge/channels.redis.js";
import { createForward } from "../bridge/forward.js";
import { observeBridge } from "../bridge/observe.js";
import { NOTIFY_WINDOW_MS } from "../fanout/apply.js";
import { createFanout } from "../fanout/fanout.js";
import { createListening } from "../fanout/listeners.redis.js";
import { createProgress } from "../fanout/progress.redis.js";
import { createComplete, createNotify, createQueueJobs } from "../fanout/publish.nats.js";
import { createSources as createFanoutSources } from "../fanout/sources.grpc.js";
import { createTimelineWriter } from "../fanout/timelines.redis.js";
import type { Logger } from "../kernel/logger.js";
import { serveGrpc } from "../platform/grpc/serve.js";
import { connectSubscriber } from "../platform/redis/connect.js";
import { observeTimeline } from "../timeline/observe.js";
import { createRebuild } from "../timeline/rebuild.js";
import { createTimelineService } from "../timeline/service.grpc.js";
import { createReadSharedLog } from "../timeline/shared-log.nats.js";
import { createSources as createReadSources } from "../timeline/sources.grpc.js";
import { createTimelineStore } from "../timeline/store.redis.js";
import type { Config } from "./config.js";
import type { Connections } from "./connections.js";
import { deadLettersTo, startConsumers } from "./consumers.js";
import { VERSION } from "./version.js";

/** A role that runs. */
export interface RunningRole {
  /** What it waits for, in words; undefined where it is ready. */
  notReady(): string | undefined;
  close(graceMs: number): Promise<void>;
}

/** What roles are started with. */
export interface RoleDeps {
  readonly config: Config;
  readonly connections: Connections;
  readonly log: Logger;
}

/** Bytes of a message that are not its payload: headers, above all those of a dead letter. */
const HEADER_ROOM = 16 * 1024;

/** Redis Pub/Sub into JetStream. */
export async function startBridgeRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const { nats, publish } = connections;
  const subscriber = connectSubscriber(config.REDIS_URL, log);
  const forward = createForward({
    admit: publish,
    deadLetters: deadLettersTo(publish),
    maxPayloadBytes: () => (nats.info?.max_payload ?? 1024 * 1024) - HEADER_ROOM,
    version: VERSION,
    log,
    observe: observeBridge.forwarded,
  });
  const bridge = await startBridge({ channels: createChannels(subscriber, log), forward, log, observe: observeBridge });
  return {
    notReady: () => (bridge.healthy() ? undefined : "bridge: Redis Pub/Sub is not subscribed"),
    close: async (graceMs) => {
      await bridge.close(graceMs);
      subscriber.disconnect();
    },
  };
}

/** Events into timelines. */
export async function startFanoutRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const { nats, publish, scripts, fenced, ledger } = connections;
  const maxEntries = config.TIMELINE_MAX_ENTRIES;
  const writer = createTimelineWriter(scripts, fenced, {
    maxEntries,
    ttlMs: config.TIMELINE_KEY_TTL_MS,
    activeOnly: config.TIMELINE_FANOUT_AUDIENCE === "active",
  });
  const handlers = createFanout({
    writer,
    ledger,
    notify: createNotify(publish, createListening(scripts, NOTIFY_WINDOW_MS)),
    queue: createQueueJobs(publish),
    progress: createProgress(scripts),
    complete: createComplete(publish),
    ...createFanoutSources(connections.upstreams(), { followersAPage: config.TIMELINE_FANOUT_CHUNK_SIZE }),
    maxEntries,
  });
  const consuming = startConsumers({ config, nats, scripts, publish, log }, handlers);
  return {
    notReady: () => (consuming.every((one) => one.healthy()) ? undefined : "fanout: not every consumer is pulling"),
    close: async (graceMs) => {
      await Promise.all(consuming.map((one) => one.close(graceMs)));
    },
  };
}

/** Timelines over gRPC. */
export async function startApiRole({
  config,
  connections,
  log,
}: RoleDeps): Promise<RunningRole & { readonly port: number }> {
  const { nats, scripts, ledger } = connections;
  const maxEntries = config.TIMELINE_MAX_ENTRIES;
  const store = createTimelineStore(scripts, { maxEntries, ttlMs: config.TIMELINE_KEY_TTL_MS });
  const service = createTimelineService(
    {
      store,
      ledger,
      sources: createReadSources(connections.upstreams()),
      readSharedLog: createReadSharedLog(nats, maxEntries),
      rebuild: createRebuild({ store, ledger, log, observe: observeTimeline.rebuilt }),
      maxEntries,
      log,
      observe: observeTimeline.read,
    },
    log,
  );
  const server = await serveGrpc(config.TIMELINE_GRPC_ADDR, [service], {
    ca: config.TIMELINE_GRPC_TLS_CA,
    cert: config.TIMELINE_GRPC_TLS_CERT,
    key: config.TIMELINE_GRPC_TLS_KEY,
  });
  server.setServing(true);
  log.info({ port: server.port }, "serving gRPC");
  return {
    port: server.port,
    notReady: () => undefined,
    close: async (graceMs) => {
      server.setServing(false);
      await server.close(graceMs);
    },
  };
}
