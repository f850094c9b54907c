import { createReadStretch } from "../consistency/redis-loss/log.nats.js";
import type { ReadStretch, Stretch } from "../consistency/redis-loss/ports.js";
import { type ReplayOptions, replay } from "../consistency/redis-loss/replay.js";
import type { FanoutJob } from "../contracts/jobs.js";
import { SILENT_HEADER } from "../contracts/silence.js";
import { jobSubject, STREAM } from "../contracts/subjects.js";
import type { Delivery, Headers } from "../delivery/handler.js";
import { createFanout } from "../fanout/fanout.js";
import type { Logger } from "../kernel/logger.js";
import type { Applying } from "./applying.js";
import type { Connections } from "./connections.js";

/** How a stretch is read and applied where not as usual. */
export interface ReplayingOptions extends ReplayOptions {
  readonly readStretch?: ReadStretch;
  /** Wraps what applies an event. */
  readonly around?: (apply: Apply) => Apply;
}

/** Applies one event of the log. */
export type Apply = (event: Delivery) => Promise<void>;

/** Applies a stretch of the log again; resolves to how many events that were. */
export type Replaying = (stretch: Stretch, options?: ReplayingOptions) => Promise<number>;

const SILENT: Headers = { get: (name) => (name === SILENT_HEADER ? "1" : undefined), entries: () => [] };

/**
 * Replays through the handlers of fan-out: nobody is told, no books are kept,
 * and what would be queued is done here, so that a replay that has ended has
 * been applied.
 */
export function createReplaying({ nats }: Pick<Connections, "nats">, fanout: Applying, log: Logger): Replaying {
  const context = { stopping: new AbortController().signal, log };
  const handlers = createFanout({
    ...fanout,
    notify: async () => undefined,
    queue: async (jobs) => {
      for (const job of jobs) await handlers.jobs(deliveryOf(job), context);
    },
    progress: { planned: async () => undefined, done: async () => undefined },
    complete: async () => undefined,
    applied: () => undefined,
  });
  const readWhole = createReadStretch(nats);
  const apply: Apply = (event) => {
    const handler = event.subject.startsWith("graph.") ? handlers.graph : handlers.drops;
    return handler({ ...event, headers: SILENT }, context);
  };
  return (stretch, { readStretch = readWhole, around = unchanged, ...options } = {}) =>
    replay({ readStretch, apply: around(apply) }, stretch, options);
}

const unchanged = (apply: Apply): Apply => apply;

const deliveryOf = (job: FanoutJob): Delivery => ({
  ...{ stream: STREAM.fanout, consumer: "replay", seq: 0, time: job.admitted_at, deliveries: 1 },
  subject: jobSubject(job.action, job.admitted_at),
  headers: SILENT,
  body: Buffer.from(JSON.stringify(job)),
});
