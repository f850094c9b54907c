import { type TimelineServiceServer, TimelineServiceService } from "../gen/avion/timeline.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unary } from "../platform/grpc/unary.js";
import { getHomeTimeline, getSharedTimeline, type ReadDeps } from "./get-timeline.js";

/** The gRPC service of the three reads. */
export function createTimelineService(deps: ReadDeps, log: Logger): Service {
  const implementation: TimelineServiceServer = {
    getHomeTimeline: unary("GetHomeTimeline", log, getHomeTimeline(deps)),
    getLocalTimeline: unary("GetLocalTimeline", log, getSharedTimeline(deps, "local")),
    getGlobalTimeline: unary("GetGlobalTimeline", log, getSharedTimeline(deps, "global")),
  };
  return { name: "avion.TimelineService", definition: TimelineServiceService, implementation };
}
