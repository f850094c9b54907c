import type { AnalysisRequest, UserTier } from "../contracts/analysis.js";
import { SECOND } from "../kernel/time.js";
import { counter, gauge, histogram } from "../telemetry/meters.js";
import type { Sample } from "../telemetry/samples.js";
import type { Failure } from "./saga.js";

const finished = counter("timeline_analyses_finished", "Analyses completed, or failed for good");
const attempts = counter("timeline_analysis_attempts_failed", "Failed attempts at an analysis");
const cache = counter("timeline_analysis_cache", "Analyses looked for in the cache: hit or miss");
const duration = histogram(
  "timeline_analysis_seconds",
  "From the 202 of an analysis to its completion",
  [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800],
);

export const observeAnalysis = {
  /** Counters that alerts use start at 0. */
  started(): void {
    for (const outcome of ["completed", "failed"]) finished.add(0, { outcome });
    for (const error_code of ["source_failed", "crashed"]) attempts.add(0, { error_code });
  },
  cache(hit: boolean): void {
    cache.add(1, { result: hit ? "hit" : "miss" });
  },
  completed({ requested_at }: AnalysisRequest, now: number): void {
    finished.add(1, { outcome: "completed" });
    duration.record(Math.max(0, now - Date.parse(requested_at)) / SECOND);
  },
  failed({ final, error_code }: Failure): void {
    attempts.add(1, { error_code });
    if (final) finished.add(1, { outcome: "failed" });
  },
};

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

const calls = histogram(
  "timeline_analysis_source_call_seconds",
  "Time a call to the AT Protocol took, by HTTP status, or timeout, unreachable or broken",
  [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
);
const tokens = gauge(
  "timeline_analysis_source_tokens",
  "Calls to the AT Protocol that all processes together may make now",
);

/** `result` is an HTTP status, or says why there is none. */
export const observeCall = (result: string, ms: number): void => calls.record(ms / SECOND, { result });

export const sampleTokens = (readTokens: () => Promise<number>): Sample => ({
  name: "source tokens",
  take: async () => [{ gauge: tokens, labels: {}, value: await readTokens() }],
});
