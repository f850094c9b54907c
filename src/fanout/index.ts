import type { Fences } from "../contracts/fences.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";
import type { Publish } from "../platform/nats/publish.js";
import type { Fenced } from "../platform/redis/fenced.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { composeFanout, type Fanout } from "./fanout.js";
import { createListening } from "./listeners.redis.js";
import { observeFanout } from "./observe.js";
import type { UntilCovered } from "./ports.js";
import { createProgress } from "./progress.redis.js";
import { createComplete, createNotify, createQueueJobs } from "./publish.nats.js";
import { createSources } from "./sources.grpc.js";
import { createTimelineWriter } from "./timelines.redis.js";

interface FanoutConfig {
  /** Drops a timeline holds at most. */
  readonly maxEntries: number;
  /** Time to live of a home timeline nobody reads. */
  readonly keyTtlMs: number;
  /** Write only to home timelines that were read since they were last lost. */
  readonly activeOnly: boolean;
  /** Followers a page, and so a chunk job. */
  readonly chunkSize: number;
}

interface FanoutHandles {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly publish: Publish;
  readonly upstreams: Upstreams;
  readonly fences: Fences;
  /** Redriven jobs wait for it; unset: they do not wait. */
  readonly untilCovered?: UntilCovered | undefined;
}

export type { Fanout, UntilCovered };

/** Composes fan-out: the handlers of its three consumers, and the function under them that a replay calls. */
export function createFanout(config: FanoutConfig, handles: FanoutHandles): Fanout {
  const { scripts, fenced, publish, upstreams, fences, untilCovered } = handles;
  const { maxEntries, keyTtlMs: ttlMs, activeOnly, chunkSize } = config;
  return composeFanout({
    writer: createTimelineWriter(scripts, fenced, { maxEntries, ttlMs, activeOnly }),
    fences,
    notify: createNotify(publish, createListening(scripts, NOTIFY_WINDOW_MS)),
    queue: createQueueJobs(publish),
    progress: createProgress(scripts),
    complete: createComplete(publish),
    applied: observeFanout.edgeApplied,
    ...createSources(upstreams, { followersAPage: chunkSize }),
    maxEntries,
    untilCovered,
  });
}
