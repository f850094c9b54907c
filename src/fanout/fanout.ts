import type { Fences } from "../contracts/fences.js";
import type { Handler } from "../delivery/handler.js";
import { createApply } from "./apply.js";
import { Followers, type ReadFollowers } from "./audience.js";
import { createDropHandler } from "./drops.js";
import { createGraphHandler } from "./graph.js";
import { createJobHandler } from "./jobs.js";
import { createForLeavers } from "./leavers.js";
import { createPlan } from "./plan.js";
import type {
  Complete,
  EdgeApplied,
  Notify,
  Progress,
  QueueJobs,
  ReadAuthorDrops,
  ReadFollowing,
  TimelineWriter,
  UntilCovered,
} from "./ports.js";

/** Everything fan-out works with. */
export interface FanoutDeps {
  readonly writer: TimelineWriter;
  readonly fences: Fences;
  readonly notify: Notify;
  readonly queue: QueueJobs;
  readonly progress: Progress;
  readonly complete: Complete;
  readonly applied: EdgeApplied;
  readonly readFollowers: ReadFollowers;
  readonly readFollowing: ReadFollowing;
  readonly readAuthorDrops: ReadAuthorDrops;
  readonly maxEntries: number;
  /** Unset: nothing waits for it. */
  readonly untilCovered?: UntilCovered | undefined;
}

/** The handlers of the three consumers of fan-out. */
export function createFanout(deps: FanoutDeps): {
  readonly drops: Handler;
  readonly graph: Handler;
  readonly jobs: Handler;
} {
  const apply = createApply(deps);
  const forLeavers = createForLeavers({ ...deps, apply });
  const plan = createPlan({ ...deps, apply, forLeavers, followers: new Followers(deps.readFollowers) });
  return {
    drops: createDropHandler({ ...deps, apply, plan }),
    graph: createGraphHandler(deps),
    jobs: createJobHandler({ ...deps, apply }),
  };
}
