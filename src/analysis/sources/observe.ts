import { metrics } from "@opentelemetry/api";
import type { Sample } from "../../delivery/sampling.js";
import { SECOND } from "../../kernel/time.js";

const meter = metrics.getMeter("avion-timeline");

const calls = meter.createHistogram("timeline_analysis_source_call_seconds", {
  description:
    "Time a call to the AT Protocol took, in seconds, by HTTP status or why there was none: timeout, unreachable, broken",
  advice: { explicitBucketBoundaries: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5] },
});
const tokens = meter.createGauge("timeline_analysis_source_tokens", {
  description: "Calls to the AT Protocol that all processes together may make at once now",
});

/** `result`: an HTTP status, or why there is none. */
export const observeCall = (result: string, ms: number): void => calls.record(ms / SECOND, { result });

export const sampleTokens = (left: () => Promise<number>): Sample => ({
  name: "source tokens",
  take: async () => [{ gauge: tokens, labels: {}, value: await left() }],
});
