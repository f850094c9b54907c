import type { OutboxEvent } from "../contracts/outbox.js";
import { sharedNow } from "../kernel/time.js";
import { counter, gauge, histogram } from "../telemetry/meters.js";
import type { Measurement } from "../telemetry/samples.js";

const published = counter("timeline_outbox_published", "Events published from an outbox");
const deadLetters = counter("timeline_outbox_dead_lettered", "Events of an outbox that NATS does not take");
const failures = counter("timeline_outbox_failures", "Rounds of a relay in which an event could not be published");
const lag = histogram(
  "timeline_outbox_lag_seconds",
  "From the writing of an event to its PubAck",
  [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5, 30],
);
const waiting = gauge("timeline_outbox_waiting", "Unpublished events");
const oldest = gauge("timeline_outbox_oldest_seconds", "Age of the oldest unpublished event");

export type ObserveOutbox = ReturnType<typeof observeOutbox>;

const eventOf = ({ subject }: OutboxEvent): string => subject.split(".", 2).join(".");

export const observeOutbox = (source: string) => ({
  published: (event: OutboxEvent): void => {
    published.add(1, { source, event: eventOf(event) });
    lag.record(Math.max(0, sharedNow() - event.createdAt) / 1_000, { source });
  },
  deadLettered: (event: OutboxEvent, reason: string): void =>
    deadLetters.add(1, { source, reason, event: eventOf(event) }),
  failed: (): void => failures.add(1, { source }),
});

export const backlogMeasurements = (
  backlog: { readonly waiting: number; readonly oldestMs: number },
  source: string,
): Measurement[] => [
  { gauge: waiting, labels: { source }, value: backlog.waiting },
  { gauge: oldest, labels: { source }, value: backlog.oldestMs / 1_000 },
];
