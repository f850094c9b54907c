import { pause, SECOND } from "../kernel/time.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../platform/db/db.js";
import { untilOlderEnded } from "../platform/db/older-transactions.js";
import { endStep, type Forget } from "../state/index.js";

/** Maximum time until a notification that was written before the marker is published. */
const SETTLE_MS = 2 * SECOND;
const ROWS_A_STEP = 1_000;

/** Forgets what users were notified of, and that others were notified of them. */
export function createForget(db: Db, settleMs = SETTLE_MS): Forget {
  const removeAll = async (table: string, column: string, user: string, stopping: AbortSignal): Promise<void> => {
    const sql = `DELETE FROM public.${table} WHERE ctid = ANY (ARRAY(
      SELECT ctid FROM public.${table} WHERE ${column} = $1 LIMIT ${ROWS_A_STEP} FOR UPDATE)) RETURNING 1`;
    for (let count = ROWS_A_STEP; count > 0; ) {
      count = (await db.transaction(({ query }) => query(sql, [user], PLANNED_EACH_TIME))).length;
      await endStep("some notifications", stopping);
    }
  };
  return async (user, { stopping, left: report }) => {
    await db.query(MARK, [user]);
    await untilOlderEnded(db, { stopping });
    await pause(settleMs, stopping);
    await endStep("marked", stopping);
    const [row] = await db.query<{ rows: number }>(COUNT, [user], PLANNED_EACH_TIME);
    if (row && row.rows > 0) await report(row.rows);
    await removeAll("notifications", "user_id", user, stopping);
    await removeAll("notifications", "actor_id", user, stopping);
    await removeAll("notification_groups", "user_id", user, stopping);
    await removeAll("notification_users", "user_id", user, stopping);
    await endStep("notifications", stopping);
  };
}

const MARK = `
INSERT INTO public.erased_notifications (user_id, marked_at) VALUES ($1, ${NOW}) ON CONFLICT (user_id) DO NOTHING`;

const COUNT = `
SELECT (SELECT count(*) FROM public.notifications WHERE user_id = $1)
  + (SELECT count(*) FROM public.notifications WHERE actor_id = $1) AS rows`;
