import { NotificationKind } from "../gen/avion/notifications.js";
import { SECOND } from "../kernel/time.js";
import { counter, histogram } from "../telemetry/meters.js";
import type { Made } from "./store.sql.js";

const written = counter("timeline_notifications_written", "Notifications written, by kind");
const lag = histogram(
  "timeline_notifications_lag_seconds",
  "From the admission of an event until its notification is written and listeners are told",
  [0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 3_600, 86_400],
);

export function observeMade(made: readonly Made[], now: number): void {
  for (const { kind, change } of made) {
    written.add(1, { kind: NotificationKind[kind].toLowerCase() });
    lag.record(Math.max(0, now - change.at) / SECOND);
  }
}
