import { chunkId, type FanoutJob, parseJob } from "../contracts/fanout.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { sampledTrace } from "../delivery/telemetry.js";
import type { Apply } from "./apply.js";
import { audienceOf } from "./audience.js";
import { observeFanout } from "./observe.js";
import { isRedriven } from "./plan.js";
import type { Progress } from "./progress.redis.js";

/** Resolves once an event of that time (ms since the epoch) would be applied again after a loss of Redis. */
export type UntilCovered = (admittedAt: number, stopping: AbortSignal) => Promise<void>;

interface JobDeps {
  readonly apply: Apply;
  readonly progress: Progress;
  readonly untilCovered?: UntilCovered | undefined;
  /** Resolves when so many homes may be written. */
  readonly throttle: (homes: number, stopping: AbortSignal) => Promise<void>;
}

/** Handles `fanout.job.*` and `fanout.rest.*`: writes chunks, and publishes a completion after the last one of a fan-out. */
export function createJobHandlers({ apply, progress, untilCovered, throttle }: JobDeps): Handlers {
  const all = async (
    deliveries: readonly Delivery[],
    stopping: AbortSignal,
    traceOf?: typeof sampledTrace,
  ): Promise<void> => {
    const jobs = deliveries.map(({ body }) => parseJob(body));
    const parts = jobs.map(({ user_ids, ...change }, at) => {
      return { change, audience: audienceOf(user_ids), trace: traceOf?.((deliveries[at] as Delivery).headers) };
    });
    await throttle(
      parts.reduce((sum, { audience }) => sum + audience.ids.length, 0),
      stopping,
    );
    await apply.chunks(parts);
    for (const { change } of parts) observeFanout.tierWritten(change);
    const finished = await Promise.all(
      parts.map(({ change }, at) => progress.done(change, chunkId(jobs[at] as FanoutJob))),
    );
    await apply.complete(
      parts.flatMap((part, at) => {
        const size = finished[at];
        return size ? [{ ...part, size }] : [];
      }),
    );
  };
  return {
    single: async (delivery, { stopping }) => {
      // A redriven job was not pending when the server identity was last recorded: a loss right after it would not be
      // replayed from there.
      if (isRedriven(delivery)) await untilCovered?.(parseJob(delivery.body).admitted_at, stopping);
      await all([delivery], stopping);
    },
    batch: async (deliveries, { stopping }) => {
      const first = deliveries.filter((delivery) => !isRedriven(delivery));
      await all(first, stopping, sampledTrace);
      return deliveries.filter(isRedriven);
    },
  };
}
