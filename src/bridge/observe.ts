import { EVENT_NAMES, type EventName } from "../contracts/events.js";
import { counter, upDownCounter } from "../kernel/meters.js";

export interface Forwarded {
  readonly outcome: "admitted" | "duplicate" | "invalid" | "toolarge" | "refused";
  readonly channel: EventName;
}

const events = counter("timeline_bridge_events", "Payloads from Redis Pub/Sub, by outcome");
const inFlight = upDownCounter("timeline_bridge_in_flight", "Payloads on their way into the log");

export const observeBridge = {
  /** Counts from 0, so that the first refusal is seen as a rise. */
  started(): void {
    for (const channel of EVENT_NAMES) events.add(0, { outcome: "refused", channel });
    inFlight.add(0);
  },
  forwarded(all: readonly Forwarded[]): void {
    for (const channel of EVENT_NAMES) {
      const counts = new Map<string, number>();
      for (const one of all) if (one.channel === channel) counts.set(one.outcome, (counts.get(one.outcome) ?? 0) + 1);
      for (const [outcome, count] of counts) events.add(count, { outcome, channel });
    }
  },
  refused: (channel: EventName): void => events.add(1, { outcome: "refused", channel }),
  inFlight: (change: number): void => inFlight.add(change),
};
