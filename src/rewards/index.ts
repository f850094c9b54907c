import { parseCompleted } from "../contracts/analysis.js";
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
import { createCalibration } from "./calibration.js";
import { createCalibrationStore } from "./calibration.sql.js";
import { drift, observeReward } from "./observe.js";
import { announcementsOf, awardFor } from "./reward.js";
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

/** Rewards each completed analysis once, and compares totals with their transactions. Needs a migrated database. */
export function startRewards({ db, publish, notify, log }: RewardsOptions) {
  const store = createRewardStore(db);
  const reward: Handler = async ({ body, seq, headers }) => {
    const completed = parseCompleted(body);
    const award = await store.award(awardFor(completed, sharedNow()), seq);
    // Another message of the same event tells of the award.
    if (award.event_seq !== seq && headers.get(DLQ_HEADER.redriveCount) === undefined) return;
    await failpoint("rewarded", body);
    const { event, id, notification, notificationId } = announcementsOf(award);
    await publish({ subject: XP_EARNED, body: Buffer.from(JSON.stringify(event)), id, headers: traceHeaders() });
    await failpoint("reward-published", body);
    await notify(award.user_id, notification, notificationId);
    observeReward(completed, award, sharedNow());
  };
  const drifted = createCalibration(createCalibrationStore(db));
  const calibration = startSampling(
    [{ name: "rewards", take: async () => [{ gauge: drift, labels: {}, value: await drifted() }] }],
    { everyMs: CALIBRATE_EVERY_MS, log },
  );
  return { reward, close: () => calibration.close() };
}

/** Reads the rewards of users. */
export const createXpReader = (db: Db) => ({ page: createRewardStore(db).page });
