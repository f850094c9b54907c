import { type AnalysisCompleted, parseCompleted, type UserTier, type XpEarned } from "../contracts/analysis.js";
import type { AnalysisNotification } from "../contracts/stream-events.js";
import { DLQ_HEADER, XP_EARNED } from "../contracts/subjects.js";
import type { Handler } from "../delivery/handler.js";
import { startSampling } from "../delivery/sampling.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, sharedNow } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import type { Publish } from "../platform/nats/publish.js";
import { createCalibration } from "./calibration.sql.js";
import { drift, observeReward } from "./observe.js";
import { createRewardStore } from "./store.sql.js";

export { createRewardStore } from "./store.sql.js";

export const REWARDS_MIGRATIONS = { component: "rewards", folder: new URL("./migrations/", import.meta.url) };

interface RewardsOptions {
  readonly db: Db;
  readonly publish: Publish;
  readonly notify: (user: string, notification: AnalysisNotification, messageId: string) => Promise<void>;
  readonly log: Logger;
}

const CALIBRATE_EVERY_MS = 10 * MINUTE;

/** An analysis earns so much XP, before the multiplier. */
const BASE = 10;
const MULTIPLIERS: Readonly<Record<UserTier, number>> = { DRIFT: 1, LIFT: 1.5, JET: 2, ORBIT: 3 };

/** Rewards each completed analysis once, and compares totals with their transactions. Needs a migrated database. */
export function startRewards({ db, publish, notify, log }: RewardsOptions) {
  const store = createRewardStore(db);
  const reward: Handler = async ({ body, seq, headers }) => {
    const completed = parseCompleted(body);
    const award = await store.award(earnedFor(completed), seq);
    const { total, event_seq, ...event } = award;
    // Another message of the same event tells of the award.
    if (event_seq !== seq && headers.get(DLQ_HEADER.redriveCount) === undefined) return;
    await failpoint("rewarded", body);
    const { event_id, user_id, amount } = event;
    const id = `xp:${event_id}`;
    await publish({ subject: XP_EARNED, body: Buffer.from(JSON.stringify(event)), id, headers: traceHeaders() });
    await failpoint("reward-published", body);
    await notify(user_id, { event: "xp_earned", event_id, amount, total }, `notify:${id}`);
    observeReward(completed, award, sharedNow());
  };
  const drifted = createCalibration(db);
  const calibration = startSampling(
    [{ name: "rewards", take: async () => [{ gauge: drift, labels: {}, value: await drifted() }] }],
    { everyMs: CALIBRATE_EVERY_MS, log },
  );
  return { reward, close: () => calibration.close() };
}

/** Amounts have at most two decimals. */
function earnedFor({ event_id, user_id, tier }: AnalysisCompleted): XpEarned {
  const multiplier = MULTIPLIERS[tier];
  const amount = Math.round(BASE * multiplier * 100) / 100;
  const earned_at = new Date(sharedNow()).toISOString();
  return { event_id, user_id, amount, multiplier, reason: "timeline_analysis", earned_at };
}
