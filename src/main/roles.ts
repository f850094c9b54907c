import type { Delivery } from "../delivery/handler.js";
import { NOTIFY_WINDOW_MS } from "../fanout/apply.js";
import { createFanout } from "../fanout/fanout.js";
import { createListening } from "../fanout/listeners.redis.js";
import { createProgress } from "../fanout/progress.redis.js";
import { createComplete, createNotify, createQueueJobs } from "../fanout/publish.nats.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { startLettersService } from "../operator/letters-service.nats.js";
import { createUpstreams } from "../operator/upstreams.grpc.js";
import { serveGrpc } from "../platform/grpc/serve.js";
import { createContinuity, createLease } from "../replay/continuity.redis.js";
import { startGuard } from "../replay/guard.js";
import { createReadBacklogStart } from "../replay/log.nats.js";
import { observeReplay } from "../replay/observe.js";
import { passingOver } from "../replay/persistent.js";
import { observeTimeline } from "../timeline/observe.js";
import { createRebuild } from "../timeline/rebuild.js";
import { createTimelineService } from "../timeline/service.grpc.js";
import { createReadSharedLog } from "../timeline/shared-log.nats.js";
import { createSources as createReadSources } from "../timeline/sources.grpc.js";
import { createTimelineStore } from "../timeline/store.redis.js";
import { createApplying } from "./applying.js";
import type { Config } from "./config.js";
import type { Connections } from "./connections.js";
import { startConsumers } from "./consumers.js";
import { startPatrolling } from "./patrolling.js";
import { createReplaying } from "./replaying.js";
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

/** Events into timelines. */
export async function startFanoutRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const { nats, publish, scripts } = connections;
  const applying = createApplying(config, connections);
  const handlers = createFanout({
    ...applying,
    notify: createNotify(publish, createListening(scripts, NOTIFY_WINDOW_MS)),
    queue: createQueueJobs(publish),
    progress: createProgress(scripts),
    complete: createComplete(publish),
  });
  const replaying = createReplaying(connections, applying, log);
  const passedOver = ({ seq }: Delivery, error: unknown): void =>
    log.warn({ seq, error: oneLine(error) }, "an event of the log can never be applied; the replay passes it over");
  const guard = startGuard({
    continuity: createContinuity(scripts),
    log,
    mending: {
      lease: createLease(scripts),
      readBacklogStart: createReadBacklogStart(nats),
      replay: (stretch, stopping) =>
        replaying(stretch, { stopping, around: (apply) => passingOver(apply, passedOver) }),
      observe: observeReplay.mended,
    },
  });
  const patrol = startPatrolling({ config, connections, log }, guard.broken);
  const consuming = startConsumers({ config, nats, scripts, publish, log }, handlers);
  const upstreams = createUpstreams(connections.upstreams);
  const letters = await startLettersService({ connection: nats, publish, upstreams, version: VERSION, log });
  return {
    notReady: () => (consuming.every((one) => one.healthy()) ? undefined : "fanout: not every consumer is pulling"),
    close: async (graceMs) => {
      await Promise.all([
        guard.close(),
        patrol.close(),
        letters.close(),
        ...consuming.map((one) => one.close(graceMs)),
      ]);
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
  const guard = startGuard({ continuity: createContinuity(scripts), log });
  scripts.client.on("close", guard.doubt);
  const store = createTimelineStore(scripts, { maxEntries, ttlMs: config.TIMELINE_KEY_TTL_MS });
  const service = createTimelineService(
    {
      store,
      ledger,
      sources: createReadSources(connections.upstreams()),
      readSharedLog: createReadSharedLog(nats, maxEntries),
      rebuild: createRebuild({ store, ledger, log, observe: observeTimeline.rebuilt }),
      maxEntries,
      maybeLost: guard.broken,
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
      await Promise.all([guard.close(), server.close(graceMs)]);
    },
  };
}
