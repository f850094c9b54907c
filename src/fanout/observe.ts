import { metrics } from "@opentelemetry/api";
import type { EventName } from "../contracts/events.js";
import type { FanoutCompleted } from "../contracts/fanout.js";

const meter = metrics.getMeter("avion-timeline");

const lag = meter.createHistogram("timeline_event_lag_seconds", {
  description: "From the creation of a drop, or the admission of a follow, until its last timeline is written",
  advice: { explicitBucketBoundaries: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300] },
});
const recipients = meter.createCounter("timeline_fanout_recipients", {
  description: "Home timelines that fan-outs were for",
});
const notified = meter.createCounter("timeline_notifications", { description: "Notifications stored for streams" });

export const observeFanout = {
  landed(completed: FanoutCompleted): void {
    lag.record(completed.lag_ms / 1_000, { event: completed.event });
    recipients.add(completed.recipients, { event: completed.event });
  },
  edgeApplied(event: EventName, admittedAt: number): void {
    lag.record(Math.max(0, Date.now() - admittedAt) / 1_000, { event });
  },
  notified(count: number): void {
    notified.add(count);
  },
};
