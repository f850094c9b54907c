import type { Sample } from "../../delivery/sampling.js";
import { gauge, histogram } from "../../kernel/meters.js";
import { SECOND } from "../../kernel/time.js";

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

export const sampleTokens = (left: () => Promise<number>): Sample => ({
  name: "source tokens",
  take: async () => [{ gauge: tokens, labels: {}, value: await left() }],
});
