import type { EventName } from "../contracts/events.js";
import type { FanoutCompleted, FanoutJob } from "../contracts/fanout.js";
import { isNews } from "../contracts/times.js";
import { sharedNow } from "../kernel/time.js";
import { counter, histogram } from "../telemetry/meters.js";

// 2 s is the bound of an objective (docs/slo.md).
const LAGS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300];
const sinceCreated = histogram(
  "timeline_created_to_landed_seconds",
  "From the creation of a drop until its last timeline is written; without drops from the past",
  LAGS,
);
const sinceAdmitted = histogram(
  "timeline_admitted_to_landed_seconds",
  "From the admission of an event until its last timeline is written",
  LAGS,
);
const tierLag = histogram(
  "timeline_tier_lag_seconds",
  "From the admission of a tiered drop until a chunk of the tier is written",
  LAGS,
);
const recipients = counter("timeline_fanout_recipients", "Homes that fan-outs were for");
const notified = counter("timeline_notifications", "Notifications stored for streams");

export const observeFanout = {
  completed(all: readonly FanoutCompleted[]): void {
    const sums = new Map<string, number>();
    for (const { event, created_at, admitted_at, landed_at, lag_ms, recipients: size } of all) {
      sinceAdmitted.record(Math.max(0, landed_at - admitted_at) / 1_000, { event });
      // A deletion has no creation.
      if (event !== "drop_deleted" && isNews(created_at, admitted_at)) sinceCreated.record(lag_ms / 1_000, { event });
      sums.set(event, (sums.get(event) ?? 0) + size);
    }
    for (const [event, size] of sums) recipients.add(size, { event });
  },
  edgeApplied: (event: EventName, admittedAt: number): void =>
    sinceAdmitted.record(Math.max(0, sharedNow() - admittedAt) / 1_000, { event }),
  tierWritten({ tier, admitted_at }: Pick<FanoutJob, "tier" | "admitted_at">): void {
    if (tier) tierLag.record(Math.max(0, sharedNow() - admitted_at) / 1_000, { tier });
  },
  notified: (count: number): void => notified.add(count),
};
