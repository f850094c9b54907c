import { ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { SECOND } from "../kernel/time.js";
import { counter, histogram } from "../telemetry/meters.js";
import { contextOf, inSpan, SpanKind, sampledTrace } from "../telemetry/spans.js";
import type { BatchHandler, Handler } from "./handler.js";

const duration = histogram(
  "timeline_handle_seconds",
  "Time the handling of a message or a batch took",
  [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10],
);
const outcomes = counter("timeline_deliveries", "Handled messages");

export function observed(handler: Handler): Handler {
  return (delivery, ctx) => {
    const { stream, consumer, seq, subject } = delivery;
    const attributes = {
      "messaging.system": "nats",
      "messaging.destination.name": stream,
      "messaging.consumer.group.name": consumer,
      "messaging.nats.stream_seq": seq,
    };
    return inSpan(`process ${subject}`, { kind: SpanKind.CONSUMER, attributes }, async () => {
      const started = performance.now();
      let result = "error";
      try {
        await handler(delivery, ctx);
        result = "ok";
      } finally {
        duration.record((performance.now() - started) / SECOND, { consumer, result });
      }
    });
  };
}

/** All messages share one span, linked to the traces of those that are sampled. */
export function observedBatch(consumer: string, handler: BatchHandler): BatchHandler {
  return (deliveries, ctx) => {
    const links = deliveries.flatMap(({ headers }) => {
      const span = sampledTrace(headers) && trace.getSpanContext(contextOf(headers));
      return span ? [{ context: span }] : [];
    });
    const attributes = {
      "messaging.system": "nats",
      "messaging.consumer.group.name": consumer,
      "messaging.batch.message_count": deliveries.length,
    };
    const options = { kind: SpanKind.CONSUMER, attributes, links, parent: ROOT_CONTEXT };
    return inSpan(`process ${consumer} batch`, options, async () => {
      const started = performance.now();
      const rest = await handler(deliveries, ctx);
      if (rest.length < deliveries.length)
        duration.record((performance.now() - started) / SECOND, { consumer, result: "ok" });
      return rest;
    });
  };
}

/** Counts from 0, so that the first failure shows as a rise. */
export function expectOutcomes(consumer: string): void {
  for (const outcome of ["dead-lettered", "dead-letter-refused"]) outcomes.add(0, { consumer, outcome });
}

export function countOutcome(outcome: string, { consumer }: { readonly consumer: string }, count = 1): void {
  outcomes.add(count, { consumer, outcome });
}
