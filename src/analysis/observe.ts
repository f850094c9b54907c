import type { AnalysisRequest } from "../contracts/analysis.js";
import { counter, histogram } from "../kernel/meters.js";
import { SECOND } from "../kernel/time.js";
import type { Failure } from "./saga.js";

const finished = counter("timeline_analyses_finished", "Analyses completed, or failed for good");
const attempts = counter("timeline_analysis_attempts_failed", "Failed attempts at an analysis");
const cache = counter("timeline_analysis_cache", "Analyses looked for in the cache: hit or miss");
const duration = histogram(
  "timeline_analysis_seconds",
  "From the 202 of an analysis to its completion",
  [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800],
);

export type ObserveAnalysis = typeof observeAnalysis;

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
