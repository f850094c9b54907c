import { metrics } from "@opentelemetry/api";
import type { Tier } from "../../contracts/analysis.js";

const meter = metrics.getMeter("avion-timeline");
const accepted = meter.createCounter("timeline_analysis_accepted", {
  description: "Analyses accepted with 202, by tier; a repeated Idempotency-Key does not count",
});
const refused = meter.createCounter("timeline_analysis_refused", {
  description: "Requests about analyses and rewards that were refused, by HTTP status",
});
const uncounted = meter.createCounter("timeline_analysis_uncounted", {
  description: "Analyses accepted while Redis could not count them against the hourly limit",
});

export const observeHttp = {
  /** Counters that alerts use start at 0. */
  started(): void {
    for (const status of [500, 503]) refused.add(0, { status });
  },
  accepted(tier: Tier, counted: boolean): void {
    accepted.add(1, { tier });
    if (!counted) uncounted.add(1);
  },
  refused(status: number): void {
    refused.add(1, { status });
  },
};
