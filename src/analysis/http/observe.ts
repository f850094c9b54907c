import type { UserTier } from "../../contracts/analysis.js";
import { counter, histogram } from "../../kernel/meters.js";

const accepted = counter(
  "timeline_analysis_accepted",
  "Analyses accepted with 202; a repeated Idempotency-Key does not count",
);
const refused = counter(
  "timeline_analysis_refused",
  "Requests about analyses and rewards that were refused, by HTTP status",
);
const uncounted = counter(
  "timeline_analysis_uncounted",
  "Analyses accepted while Redis could not count them against the hourly limit",
);
const answered = histogram(
  "timeline_analysis_request_seconds",
  "From the arrival of a POST of an analysis until its answer is written, by HTTP status",
  [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 10],
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
  answered: (status: number, seconds: number): void => answered.record(seconds, { status }),
  refused(status: number): void {
    refused.add(1, { status });
  },
};
