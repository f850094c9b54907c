import { pause, SECOND } from "../kernel/time.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../platform/db/db.js";
import { untilOlderEnded } from "../platform/db/older-transactions.js";
import { endStep, type Forget } from "../state/index.js";

interface ForgetDeps {
  readonly db: Db;
  readonly removeEarned: (user: string, stopping: AbortSignal) => Promise<void>;
  readonly settleMs?: number | undefined;
}

/** A reward that was given before the marker is published within this time, or published and removed later. */
const SETTLE_MS = 2 * SECOND;

export function createForget({ db, removeEarned, settleMs = SETTLE_MS }: ForgetDeps): Forget {
  const counted = async (sql: string, user: string): Promise<number> => {
    const [row] = await db.query<{ rows: number }>(sql, [user], PLANNED_EACH_TIME);
    return row?.rows ?? 0;
  };
  return async (user, { stopping, left: report }) => {
    await db.query(MARK, [user]);
    await untilOlderEnded(db, { stopping });
    await pause(settleMs, stopping);
    await endStep("marked", stopping);
    for (let count = await counted(COUNT, user); count > 0; ) {
      await report(count);
      const removed = await counted(REMOVE_SOME, user);
      count = removed === 0 ? 0 : count - removed;
      await endStep("some rewards", stopping);
    }
    await db.query(REMOVE_TOTAL, [user]);
    await endStep("rewards", stopping);
    await removeEarned(user, stopping);
    await endStep("events", stopping);
  };
}

const MARK = `
INSERT INTO public.erased_rewards (user_id, marked_at) VALUES ($1, ${NOW}) ON CONFLICT (user_id) DO NOTHING`;

const COUNT = "SELECT count(*) AS rows FROM public.xp_transactions WHERE user_id = $1";

/** The total stays the sum of the transactions that are left. */
const REMOVE_SOME = `
WITH removed AS (
  DELETE FROM public.xp_transactions WHERE event_id IN (
    SELECT event_id FROM public.xp_transactions WHERE user_id = $1 ORDER BY position LIMIT 1000)
  RETURNING amount
), lowered AS (
  UPDATE public.xp_totals SET total = total - coalesce((SELECT sum(amount) FROM removed), 0) WHERE user_id = $1
)
SELECT count(*) AS rows FROM removed`;

const REMOVE_TOTAL = "DELETE FROM public.xp_totals WHERE user_id = $1";
