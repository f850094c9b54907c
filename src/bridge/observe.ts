import { CHANNELS, type Channel } from "../contracts/channels.js";
import { isNews } from "../contracts/times.js";
import { sharedNow } from "../kernel/time.js";
import { counter, histogram, upDownCounter } from "../telemetry/meters.js";

export interface Forwarded {
  readonly outcome: "admitted" | "duplicate" | "invalid" | "toolarge" | "erased" | "refused";
  readonly channel: Channel;
  /** Time of publication, ms since the epoch, if the payload has it. */
  readonly publishedAt?: number | undefined;
}

const events = counter("timeline_bridge_events", "Payloads from Redis Pub/Sub");
const sincePublished = histogram(
  "timeline_published_to_admitted_seconds",
  "From the created_at of a drop_created until the bridge has its PubAck; without drops from the past",
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300],
);
const inFlight = upDownCounter("timeline_bridge_in_flight", "Payloads on their way into the log");

export const observeBridge = {
  /** Counts from 0, so that the first refusal is seen as a rise. */
  started(): void {
    for (const channel of CHANNELS) events.add(0, { outcome: "refused", channel });
    inFlight.add(0);
  },
  forwarded(all: readonly Forwarded[]): void {
    const now = sharedNow();
    for (const { outcome, publishedAt } of all) {
      // A bridge leaves out an event that another bridge admitted first.
      if (outcome !== "admitted" || publishedAt === undefined || !isNews(publishedAt, now)) continue;
      sincePublished.record(Math.max(0, now - publishedAt) / 1_000);
    }
    for (const channel of CHANNELS) {
      const counts = new Map<string, number>();
      for (const event of all)
        if (event.channel === channel) counts.set(event.outcome, (counts.get(event.outcome) ?? 0) + 1);
      for (const [outcome, count] of counts) events.add(count, { outcome, channel });
    }
  },
  refused: (channel: Channel): void => events.add(1, { outcome: "refused", channel }),
  inFlight: (change: number): void => inFlight.add(change),
};
