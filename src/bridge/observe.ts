import { EVENT_NAMES, type EventName } from "../contracts/events.js";
import { counter, upDownCounter } from "../kernel/meters.js";

const events = counter("timeline_bridge_events", "Payloads from Redis Pub/Sub, by outcome");
const inFlight = upDownCounter("timeline_bridge_in_flight", "Payloads on their way into the log");

export const observeBridge = {
  /** Counts from 0, so that the first refusal is seen as a rise. */
  started(): void {
    for (const channel of EVENT_NAMES) events.add(0, { outcome: "refused", channel });
    inFlight.add(0);
  },
  forwarded: (outcome: string, channel: EventName): void => events.add(1, { outcome, channel }),
  refused: (channel: EventName): void => events.add(1, { outcome: "refused", channel }),
  inFlight: (change: number): void => inFlight.add(change),
};
