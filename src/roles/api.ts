import { watchForLosses } from "../consistency/index.js";
import { createTimelines, type Timelines } from "../timeline/index.js";
import type { Connections } from "./connections.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Timelines over gRPC. */
export async function startApiRole({ config, connections, log }: RoleDeps): Promise<RunningRole> {
  const losses = watchForLosses({ ...connections, log });
  connections.scripts.client.on("close", losses.doubt);
  connections.topology.onDoubt(losses.doubt);
  const service = composeTimelines({ config, connections, log }).service(losses.maybeLost);
  return { services: [service], notReady: () => undefined, close: () => losses.close() };
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
