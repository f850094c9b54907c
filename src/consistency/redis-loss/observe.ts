import { metrics } from "@opentelemetry/api";

const meter = metrics.getMeter("avion-timeline");
const losses = meter.createCounter("timeline_redis_losses", {
  description: "Times a Redis was found to have lost what it had confirmed, and the log was applied again",
});
const logLosses = meter.createCounter("timeline_log_losses", {
  description:
    "Times DROPS or FANOUT was found to have lost messages or to have been made anew, and that was reconciled",
});
const replayed = meter.createCounter("timeline_replayed_events", { description: "Events applied again from the log" });

/** What operators see of replays. */
export const observeReplay = {
  /** Counts from 0, so that the first loss is seen as a rise. */
  started(): void {
    losses.add(0);
    logLosses.add(0);
    replayed.add(0);
  },
  mended({ redis, log }: { readonly redis: boolean; readonly log: boolean }, events: number): void {
    if (redis) losses.add(1);
    if (log || !redis) logLosses.add(1);
    replayed.add(events);
  },
};
