import type { FanoutJob } from "../contracts/jobs.js";
import { SILENT_HEADER } from "../contracts/silence.js";
import { STREAM } from "../contracts/subjects.js";
import type { Delivery, Headers } from "../delivery/handler.js";
import { createFanout, type FanoutDeps } from "../fanout/fanout.js";
import type { Logger } from "../kernel/logger.js";
import { createReadStretch } from "../replay/log.nats.js";
import type { Stretch } from "../replay/ports.js";
import { type ReplayOptions, replay } from "../replay/replay.js";
import type { Connections } from "./connections.js";

/** Applies a stretch of the log again; resolves to how many events that were. */
export type Replaying = (stretch: Stretch, options?: ReplayOptions) => Promise<number>;

const SILENT: Headers = { get: (name) => (name === SILENT_HEADER ? "1" : undefined), entries: () => [] };

/**
 * Replays through the handlers of fan-out: nobody is told, no books are kept,
 * and what would be queued is done here, so that a replay that has ended has
 * been applied.
 */
export function createReplaying(
  { nats }: Pick<Connections, "nats">,
  fanout: Omit<FanoutDeps, "notify" | "queue" | "progress" | "complete">,
  log: Logger,
): Replaying {
  const context = { stopping: new AbortController().signal, log };
  const handlers = createFanout({
    ...fanout,
    notify: async () => undefined,
    queue: async (jobs) => {
      for (const job of jobs) await handlers.jobs(deliveryOf(job), context);
    },
    progress: { planned: async () => undefined, done: async () => undefined },
    complete: async () => undefined,
  });
  const readStretch = createReadStretch(nats);
  const apply = (event: Delivery): Promise<void> => {
    const handler = event.subject.startsWith("graph.") ? handlers.graph : handlers.drops;
    return handler({ ...event, headers: SILENT }, context);
  };
  return (stretch, options) => replay({ readStretch, apply }, stretch, options);
}

const deliveryOf = (job: FanoutJob): Delivery => ({
  ...{ stream: STREAM.fanout, consumer: "replay", seq: 0, time: job.admitted_at, deliveries: 1 },
  subject: `fanout.job.${job.action}`,
  headers: SILENT,
  body: Buffer.from(JSON.stringify(job)),
});
