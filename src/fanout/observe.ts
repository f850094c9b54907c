import type { EventName } from "../contracts/events.js";
import type { FanoutCompleted } from "../contracts/fanout.js";
import { counter, histogram } from "../kernel/meters.js";

const lag = histogram(
  "timeline_event_lag_seconds",
  "From the creation of a drop, or the admission of a follow, until its last timeline is written",
  [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300],
);
const recipients = counter("timeline_fanout_recipients", "Home timelines that fan-outs were for");
const notified = counter("timeline_notifications", "Notifications stored for streams");

export const observeFanout = {
  landed(completed: FanoutCompleted): void {
    lag.record(completed.lag_ms / 1_000, { event: completed.event });
    recipients.add(completed.recipients, { event: completed.event });
  },
  edgeApplied: (event: EventName, admittedAt: number): void =>
    lag.record(Math.max(0, Date.now() - admittedAt) / 1_000, { event }),
  notified: (count: number): void => notified.add(count),
};
