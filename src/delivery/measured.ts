import { metrics } from "@opentelemetry/api";
import type { Handler } from "./handler.js";

const meter = metrics.getMeter("avion-timeline");
const duration = meter.createHistogram("timeline_handle_seconds", {
  description: "Time one handling of a message took, in seconds",
  advice: { explicitBucketBoundaries: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10] },
});
const outcomes = meter.createCounter("timeline_deliveries", {
  description: "Messages by what became of them",
});

/** Measures each handling. */
export function measured(handler: Handler): Handler {
  return async (delivery, context) => {
    const started = performance.now();
    let result = "ok";
    try {
      await handler(delivery, context);
    } catch (error) {
      result = "error";
      throw error;
    } finally {
      duration.record((performance.now() - started) / 1_000, { consumer: delivery.consumer, result });
    }
  };
}

/** Counts the failures of a consumer from 0, so that the first one is seen as a rise. */
export function expectOutcomes(consumer: string): void {
  for (const outcome of ["dead-lettered", "letter-refused"]) outcomes.add(0, { consumer, outcome });
}

/** Counts what became of a message. */
export function countOutcome(outcome: string, delivery: { readonly consumer: string }): void {
  outcomes.add(1, { consumer: delivery.consumer, outcome });
}
