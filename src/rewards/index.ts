import type { NatsConnection } from "nats";
import { type AnalysisCompleted, naming, parseCompleted, type UserTier, type XpEarned } from "../contracts/analysis.js";
import { DLQ_HEADER, STREAM, XP_EARNED } from "../contracts/subjects.js";
import type { Handler } from "../delivery/handler.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, sharedNow } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import type { Publish } from "../platform/nats/publish.js";
import { createRemovals } from "../platform/nats/remove-messages.js";
import type { State } from "../state/index.js";
import { startSampling } from "../telemetry/samples.js";
import { traceHeaders } from "../telemetry/spans.js";
import { createCalibration } from "./calibration.sql.js";
import { createForget } from "./erasure.sql.js";
import { drift, observeReward } from "./observe.js";
import { type Award, createRewardStore } from "./store.sql.js";

export { createRewardStore } from "./store.sql.js";

export const REWARDS_MIGRATIONS = { component: "rewards", folder: new URL("./migrations/", import.meta.url) };

interface RewardsOptions {
  readonly db: Db;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly state: Pick<State, "streams" | "erased">;
  /** An erasure waits for so long before it removes anything; the default is that of its role. */
  readonly settleMs?: number | undefined;
  readonly log: Logger;
}

const CALIBRATE_EVERY_MS = 10 * MINUTE;

/** An analysis earns so much XP, before the multiplier. */
const BASE = 10;
const MULTIPLIERS: Readonly<Record<UserTier, number>> = { DRIFT: 1, LIFT: 1.5, JET: 2, ORBIT: 3 };

/** Rewards each completed analysis once, and compares totals with their transactions. Needs a migrated database. */
export function startRewards({ db, nats, publish, state, settleMs, log }: RewardsOptions) {
  const removals = createRemovals(nats);
  const reward = createReward({ store: createRewardStore(db), publish, state, remove: removals.remove });
  const drifted = createCalibration(db);
  const calibration = startSampling(
    [{ name: "rewards", take: async () => [{ gauge: drift, labels: {}, value: await drifted() }] }],
    { everyMs: CALIBRATE_EVERY_MS, log },
  );
  const removeEarned = (user: string, stopping: AbortSignal): Promise<void> => {
    const namedAs = naming(user);
    const events = { stream: STREAM.gamification, subject: XP_EARNED };
    return removals.fromLog({ ...events, isWanted: ({ body }) => namedAs(body) !== undefined, stopping });
  };
  return {
    reward,
    forget: createForget({ db, removeEarned, settleMs }),
    close: () => calibration.close(),
  };
}

interface RewardDeps extends Pick<RewardsOptions, "publish" | "state"> {
  readonly store: ReturnType<typeof createRewardStore>;
  readonly remove: (stream: string, seq: number) => Promise<void>;
}

/**
 * A publication is removed again if the erasure came meanwhile. A late event about an erased user does not stay.
 */
function createReward({ store, publish, state, remove }: RewardDeps): Handler {
  const { erased, streams } = state;
  const isErased = async (user: string): Promise<boolean> => (await erased.among([user])).size > 0;
  const tell = async ({ total, event_seq: _, ...event }: Award, body: Uint8Array): Promise<void> => {
    const { event_id, user_id, amount } = event;
    const id = `xp:${event_id}`;
    const message = { subject: XP_EARNED, body: Buffer.from(JSON.stringify(event)), id, headers: traceHeaders() };
    const { seq } = await publish(message);
    await failpoint("reward-published", body);
    if (await isErased(user_id)) return remove(STREAM.gamification, seq);
    await streams.notifyUser(user_id, { event: "xp_earned", event_id, amount, total }, `notify:${id}`);
  };
  return async ({ body, seq, headers }) => {
    const completed = parseCompleted(body);
    const { user_id: user, did } = completed;
    const award = await store.award(earnedFor(completed), seq);
    // Another message of the same event tells of the award.
    if (award && (award.event_seq === seq || headers.get(DLQ_HEADER.redriveCount) !== undefined)) {
      await failpoint("rewarded", body);
      if (!(await isErased(user))) await tell(award, body);
      observeReward(completed, award, sharedNow());
    }
    if ((await erased.among([user, did])).size > 0) await remove(STREAM.timelineEvents, seq);
  };
}

/** Amounts have at most two decimals. */
function earnedFor({ event_id, user_id, tier }: AnalysisCompleted): XpEarned {
  const multiplier = MULTIPLIERS[tier];
  const amount = Math.round(BASE * multiplier * 100) / 100;
  const earned_at = new Date(sharedNow()).toISOString();
  return { event_id, user_id, amount, multiplier, reason: "timeline_analysis", earned_at };
}
