import { createContinuity } from "../consistency/redis-loss/continuity.redis.js";
import { startGuard } from "../consistency/redis-loss/guard.js";
import { createReadLogMark } from "../consistency/redis-loss/log.nats.js";
import { createTimelines, type Timelines } from "../timeline/index.js";
import type { Connections } from "./connections.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Timelines over gRPC. */
export async function startApiRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const { nats, scripts, fenced, topology } = connections;
  const guard = startGuard({
    continuity: createContinuity(scripts, fenced),
    readLogMark: createReadLogMark(nats),
    log,
  });
  scripts.client.on("close", guard.doubt);
  topology.onDoubt(guard.doubt);
  const service = composeTimelines({ config, connections, log }).service(guard.broken);
  return { services: [service], notReady: () => undefined, close: () => guard.close() };
}

export type TimelinesConnections = Pick<
  Connections,
  "nats" | "scripts" | "fenced" | "fences" | "upstreams" | "readLimits"
>;

/** Timelines over the connections of a process. */
export function composeTimelines({
  config,
  connections,
  log,
}: Pick<RoleDeps, "config" | "log"> & { connections: TimelinesConnections }): Timelines {
  const { upstreams, readLimits, ...handles } = connections;
  return createTimelines({
    ...handles,
    upstreams: upstreams("reads"),
    limits: readLimits,
    config: { ...config.storedTimelines, ...config.timeline },
    log,
  });
}
