import { EVENT_NAMES, type EventName } from "../contracts/events.js";
import { isNews } from "../contracts/times.js";
import { histogram, tallies, upDownCounter } from "../kernel/meters.js";
import { sharedNow } from "../kernel/time.js";

export interface Forwarded {
  readonly outcome: "admitted" | "duplicate" | "invalid" | "toolarge" | "refused";
  readonly channel: EventName;
  /** When it was published, in ms since the epoch, where the payload tells. */
  readonly publishedAt?: number | undefined;
}

const events = tallies("timeline_bridge_events", "Payloads from Redis Pub/Sub, by outcome");
const sincePublished = histogram(
  "timeline_published_to_admitted_seconds",
  "From the created_at of a drop_created until the bridge has its PubAck, in seconds; drops from the past are left out",
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300],
);
const inFlight = upDownCounter("timeline_bridge_in_flight", "Payloads on their way into the log");

export const observeBridge = {
  /** Counts from 0, so that the first refusal is seen as a rise. */
  started(): void {
    for (const channel of EVENT_NAMES) events({ outcome: "refused", channel }).add(0);
    inFlight.add(0);
  },
  forwarded(all: readonly Forwarded[]): void {
    const now = sharedNow();
    for (const { outcome, channel, publishedAt } of all) {
      events({ outcome, channel }).add();
      // A bridge leaves out an event that another bridge admitted first.
      if (outcome !== "admitted" || publishedAt === undefined || !isNews(publishedAt, now)) continue;
      sincePublished.record(Math.max(0, now - publishedAt) / 1_000);
    }
  },
  refused: (channel: EventName): void => events({ outcome: "refused", channel }).add(),
  inFlight: (change: number): void => inFlight.add(change),
};
