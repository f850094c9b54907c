import type { EventName } from "../contracts/events.js";
import type { FanoutCompleted, FanoutJob } from "../contracts/fanout.js";
import { counter, histogram } from "../kernel/meters.js";
import { sharedNow } from "../kernel/time.js";

const LAGS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300];
const lag = histogram(
  "timeline_event_lag_seconds",
  "From the creation of a drop, or the admission of a follow, until its last timeline is written",
  LAGS,
);
const tierLag = histogram(
  "timeline_tier_lag_seconds",
  "From the creation of a tiered drop until a chunk of the tier is written",
  LAGS,
);
const recipients = counter("timeline_fanout_recipients", "Home timelines that fan-outs were for");
const notified = counter("timeline_notifications", "Notifications stored for streams");

export const observeFanout = {
  completed(all: readonly FanoutCompleted[]): void {
    const sums = new Map<string, number>();
    for (const { event, lag_ms, recipients: size } of all) {
      lag.record(lag_ms / 1_000, { event });
      sums.set(event, (sums.get(event) ?? 0) + size);
    }
    for (const [event, size] of sums) recipients.add(size, { event });
  },
  edgeApplied: (event: EventName, admittedAt: number): void =>
    lag.record(Math.max(0, sharedNow() - admittedAt) / 1_000, { event }),
  tierWritten({ tier, created_at, admitted_at }: Pick<FanoutJob, "tier" | "created_at" | "admitted_at">): void {
    if (tier) tierLag.record(Math.max(0, sharedNow() - Math.max(created_at, admitted_at)) / 1_000, { tier });
  },
  notified: (count: number): void => notified.add(count),
};
