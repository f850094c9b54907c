import { chunkId, parseJob } from "../contracts/fanout.js";
import type { Delivery, Handlers } from "../delivery/handler.js";
import { audienceOf, authorsOf, withoutErased } from "../state/index.js";
import { sampledTrace } from "../telemetry/spans.js";
import type { WithApply } from "./apply.js";
import { observeFanout } from "./observe.js";
import { isRedriven } from "./plan.js";

type JobDeps = WithApply & {
  /** Resolves once this number of homes may be written. */
  readonly throttle: (homes: number, stopping: AbortSignal) => Promise<void>;
};

/**
 * Handles `fanout.job.*` and `fanout.rest.*`: writes chunks, and publishes a completion after the last one of a
 * fan-out. A fan-out for an erased author ends without a completion.
 */
export function createJobHandlers({ apply, erased, progress, untilCovered, throttle }: JobDeps): Handlers {
  const handle = async (
    deliveries: readonly Delivery[],
    stopping: AbortSignal,
    traceOf?: typeof sampledTrace,
  ): Promise<void> => {
    const all = deliveries.map(({ body, headers }) => {
      const job = parseJob(body);
      const { user_ids, ...change } = job;
      return { change, chunk: chunkId(job), audience: audienceOf(user_ids), trace: traceOf?.(headers) };
    });
    const homes = all.reduce((sum, { audience }) => sum + audience.ids.length + audience.readers.length, 0);
    const [parts] = await Promise.all([
      withoutErased(erased, all, ({ change }) => authorsOf(change)),
      throttle(homes, stopping),
    ]);
    await apply.chunks(parts);
    for (const { change } of parts) observeFanout.tierWritten(change);
    const sizes = await Promise.all(parts.map(({ change, chunk }) => progress.done(change, chunk)));
    await apply.complete(
      parts.flatMap(({ change, trace }, index) => {
        const size = sizes[index];
        return size ? [{ change, trace, size }] : [];
      }),
    );
  };
  return {
    single: async (delivery, { stopping }) => {
      // A redriven job was not pending when the server identity record was last written: after a loss right after it,
      // the replay from there would not include the job.
      if (isRedriven(delivery)) await untilCovered?.(parseJob(delivery.body).admitted_at, stopping);
      await handle([delivery], stopping);
    },
    batch: async (deliveries, { stopping }) => {
      const first = deliveries.filter((delivery) => !isRedriven(delivery));
      await handle(first, stopping, sampledTrace);
      return deliveries.filter(isRedriven);
    },
  };
}
