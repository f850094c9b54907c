import type { StoredTimelinesConfig } from "../contracts/config.js";
import type { Logger } from "../kernel/logger.js";
import type { Loop } from "../kernel/loop.js";
import { DAY } from "../kernel/time.js";
import type { PublishAll } from "../platform/nats/publish.js";
import type { State } from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import type { FanoutConfig } from "./config.js";
import { startCrossings } from "./crossing.js";
import type { FanoutDeps } from "./deps.js";
import { composeFanout, type Fanout } from "./fanout.js";
import { createNotify } from "./notify.js";
import { observeFanout } from "./observe.js";
import {
  createComplete,
  createNotifyHiding,
  createNotifyShared,
  createPublishNotifications,
  createQueueEdges,
  createQueueJobs,
  type Sample,
} from "./publish.nats.js";
import { createSources } from "./sources.grpc.js";

export type { Fanout } from "./fanout.js";
export { createReadFanOuts } from "./record.nats.js";

interface FanoutHandles {
  readonly config: { readonly fanout: FanoutConfig; readonly storedTimelines: StoredTimelinesConfig };
  readonly state: State;
  readonly publishAll: PublishAll;
  readonly upstreams: Upstreams;
  readonly log: Logger;
  /** Resolves once the pulled authors of a user are known. Default: their followers are not notified. */
  readonly fillPulls?: (user: string) => Promise<void>;
  /** Redriven jobs wait until this resolves. Default: they do not wait. */
  readonly untilCovered?: FanoutDeps["untilCovered"];
  /** Chooses the completions that are checked later. Default: none. */
  readonly sample?: Sample;
  /** Default: RECENT_MS. */
  readonly recentMs?: number | undefined;
  /** Default: REST_RATE. */
  readonly restRate?: number | undefined;
}

/** Followers of a tiered author who have read their home within this time are written before the others. */
const RECENT_MS = 3 * DAY;
/** Maximum number of homes of the last tier that a process writes a second. */
const REST_RATE = 20_000;

/**
 * Starts the changes of authors' states. `readBacklogStart` resolves to the time at which the oldest event or job that
 * is not applied yet was admitted, in ms since the epoch.
 */
type StartCrossings = (readBacklogStart: () => Promise<number>) => Loop;

/** Composes fan-out: the handlers of its consumers, and the function that a replay calls. */
export function createFanout(handles: FanoutHandles): Fanout & { readonly startCrossings: StartCrossings } {
  const { config, state, publishAll, upstreams, untilCovered, log } = handles;
  const { fences, erased, authorStates, standings, veiled } = state;
  const { fillPulls = async () => undefined, sample = () => new Set() } = handles;
  const sources = createSources(upstreams, erased, config.fanout.chunkSize);
  const activeOnly = config.fanout.audience === "active";
  const writes = state.openWrites({ ...sources, upstreams, fillPulls, activeOnly });
  const deps: FanoutDeps = {
    ...sources,
    ...writes,
    renewList: state.lists.renew,
    fences,
    erased,
    authorStates,
    standings,
    veiled,
    maxEntries: config.storedTimelines.maxEntries,
    judgesReplies: config.storedTimelines.homeReplies === "followed",
    untilCovered,
    recentMs: handles.recentMs ?? RECENT_MS,
    restRate: handles.restRate ?? REST_RATE,
    notify: createNotify({ ...writes, standings, erased, publish: createPublishNotifications(publishAll) }),
    notifyHiding: createNotifyHiding(publishAll),
    notifyShared: createNotifyShared(publishAll),
    queue: createQueueJobs(publishAll),
    queueEdges: createQueueEdges(publishAll),
    complete: createComplete(publishAll, sample),
    applied: observeFanout.edgeApplied,
  };
  const lease = state.lease("crossing");
  return {
    ...composeFanout(deps),
    startCrossings: (readBacklogStart) => startCrossings({ ...deps, readBacklogStart, lease, log }),
  };
}
