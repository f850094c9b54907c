import { createContinuity } from "../consistency/redis-loss/continuity.redis.js";
import { startGuard } from "../consistency/redis-loss/guard.js";
import { createReadLogMark } from "../consistency/redis-loss/log.nats.js";
import { observeTimeline } from "../timeline/observe.js";
import { createRebuild } from "../timeline/rebuild.js";
import { createTimelineService } from "../timeline/service.grpc.js";
import { createReadSharedLog } from "../timeline/shared-log.nats.js";
import { createSources as createReadSources } from "../timeline/sources.grpc.js";
import { createTimelineStore } from "../timeline/store.redis.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Timelines over gRPC. */
export async function startApiRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const { nats, scripts, fenced, fences, topology, readLimits } = connections;
  const maxEntries = config.storedTimelines.maxEntries;
  const guard = startGuard({
    continuity: createContinuity(scripts, fenced),
    readLogMark: createReadLogMark(nats),
    log,
  });
  scripts.client.on("close", guard.doubt);
  topology.onDoubt(guard.doubt);
  const store = createTimelineStore(scripts, fenced, { maxEntries, ttlMs: config.storedTimelines.ttlMs });
  const service = createTimelineService(
    {
      store,
      fences,
      openSources: createReadSources(connections.upstreams("reads"), readLimits.calls),
      inTurn: readLimits.inTurn,
      readSharedLog: createReadSharedLog(nats, maxEntries),
      rebuild: createRebuild({ store, fences, inTurn: readLimits.inTurn, log, observe: observeTimeline.rebuilt }),
      maxEntries,
      deadlineMaxMs: config.timeline.readDeadlineMaxMs,
      maybeLost: guard.broken,
      log,
      observe: observeTimeline.read,
    },
    log,
  );
  return { services: [service], notReady: () => undefined, close: () => guard.close() };
}
