import type { AnalysisCompleted } from "../contracts/analysis.js";
import { SECOND } from "../kernel/time.js";
import { counter, gauge, histogram } from "../telemetry/meters.js";
import type { Award } from "./store.sql.js";

const awards = counter("timeline_rewards", "Rewards given");
const amount = counter("timeline_rewards_xp", "XP given");
const lag = histogram(
  "timeline_rewards_lag_seconds",
  "From the completion of an analysis to its reward",
  [0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 3_600, 86_400],
);
export const drift = gauge(
  "timeline_rewards_drifted_users",
  "Users whose total differs from the sum of their transactions",
);

export function observeReward({ tier, completed_at }: AnalysisCompleted, award: Award, now: number): void {
  awards.add(1, { tier });
  amount.add(award.amount);
  lag.record(Math.max(0, now - Date.parse(completed_at)) / SECOND);
}
