import type { StoredTimelinesConfig } from "../contracts/config.js";
import type { Fences } from "../contracts/fences.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";
import type { PublishAll } from "../platform/nats/publish.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { FanoutConfig } from "./config.js";
import { composeFanout, type Fanout } from "./fanout.js";
import { observeFanout } from "./observe.js";
import type { UntilCovered } from "./plan.js";
import { createComplete, createNotify, createQueueJobs } from "./publish.nats.js";
import { createSources } from "./sources.grpc.js";
import { createListenersAmong, createProgress, createTimelineWriter } from "./store.redis.js";

interface FanoutHandles {
  readonly config: { readonly fanout: FanoutConfig; readonly storedTimelines: StoredTimelinesConfig };
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly publishAll: PublishAll;
  readonly upstreams: Upstreams;
  readonly fences: Fences;
  /** Redriven jobs wait for it; unset: they do not wait. */
  readonly untilCovered?: UntilCovered | undefined;
}

/** Composes fan-out: the handlers of its three consumers, and the function under them that a replay calls. */
export function createFanout({
  config,
  scripts,
  fenced,
  publishAll,
  upstreams,
  fences,
  untilCovered,
}: FanoutHandles): Fanout {
  const { maxEntries, ttlMs } = config.storedTimelines;
  const activeOnly = config.fanout.audience === "active";
  return composeFanout({
    fences,
    untilCovered,
    ...createSources(upstreams, config.fanout.chunkSize),
    writer: createTimelineWriter(scripts, fenced, { maxEntries, ttlMs, activeOnly }),
    notify: createNotify(publishAll, createListenersAmong(scripts)),
    queue: createQueueJobs(publishAll),
    progress: createProgress(scripts),
    complete: createComplete(publishAll),
    applied: observeFanout.edgeApplied,
    maxEntries,
  });
}
