import type { Failpoint } from "../../src/kernel/failpoints.js";

/** The failpoints of an analysis and its reward, in the order they are passed. */
export const SAGA_STEPS: readonly Failpoint[] = [
  "handle",
  "analysed",
  "analysis-stored",
  "analysis-cached",
  "analysis-published",
  "handled",
  "rewarded",
  "reward-published",
];
