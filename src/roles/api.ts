import { watchForLosses } from "../consistency/index.js";
import { createTimelines } from "../timeline/index.js";
import type { RoleDeps, RunningRole } from "./role.js";

/** Timelines over gRPC. */
export async function startApiRole({
  config,
  connections,
  log,
}: RoleDeps<"storedTimelines" | "timeline">): Promise<RunningRole> {
  const losses = watchForLosses({ ...connections, log });
  connections.scripts.client.on("close", losses.suspect);
  connections.topology.onPossibleLoss(losses.suspect);
  const timelines = createTimelines({ ...connections, upstreams: connections.upstreams("reads"), config, log });
  return { services: [timelines.service(losses.maybeLost)], notReady: () => undefined, close: () => losses.close() };
}
