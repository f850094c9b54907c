import type { UserTier } from "../../contracts/analysis.js";
import { counter } from "../../kernel/meters.js";

const accepted = counter(
  "timeline_analysis_accepted",
  "Analyses accepted with 202, by tier; a repeated Idempotency-Key does not count",
);
const refused = counter(
  "timeline_analysis_refused",
  "Requests about analyses and rewards that were refused, by HTTP status",
);
const uncounted = counter(
  "timeline_analysis_uncounted",
  "Analyses accepted while Redis could not count them against the hourly limit",
);

export const observeHttp = {
  /** Counters that alerts use start at 0. */
  started(): void {
    for (const status of [500, 503]) refused.add(0, { status });
  },
  accepted(tier: UserTier, counted: boolean): void {
    accepted.add(1, { tier });
    if (!counted) uncounted.add(1);
  },
  refused(status: number): void {
    refused.add(1, { status });
  },
};
