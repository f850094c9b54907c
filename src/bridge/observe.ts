import { metrics } from "@opentelemetry/api";
import { EVENT_NAMES, type EventName } from "../contracts/events.js";

const meter = metrics.getMeter("avion-timeline");
const events = meter.createCounter("timeline_bridge_events", {
  description: "Payloads from Redis Pub/Sub, by outcome",
});
const inFlight = meter.createUpDownCounter("timeline_bridge_in_flight", {
  description: "Payloads on their way into the log",
});

export const observeBridge = {
  /** Counts from 0, so that the first refusal is seen as a rise. */
  started(): void {
    for (const channel of EVENT_NAMES) events.add(0, { outcome: "refused", channel });
    inFlight.add(0);
  },
  forwarded(outcome: string, channel: EventName): void {
    events.add(1, { outcome, channel });
  },
  refused(channel: EventName): void {
    events.add(1, { outcome: "refused", channel });
  },
  inFlight(change: number): void {
    inFlight.add(change);
  },
};
