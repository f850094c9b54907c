import { DAY, HOUR, sharedNow } from "../kernel/time.js";
import { type Db, PLANNED_EACH_TIME } from "../platform/db/db.js";
import { MAX_NOTIFICATIONS } from "./store.sql.js";

/**
 * A message that was written, and not acknowledged, is handled again within this time. A younger row stays, so that it
 * is not counted twice in an event.
 */
const SETTLED_MS = HOUR;
/** Groups without new notifications for this long begin anew. */
const GROUPS_KEPT_MS = DAY;
/** Users without new notifications for this long have none any more. */
const USERS_KEPT_MS = 98 * DAY;
/** Maximum number of rows of a user that are kept, shown or not. */
const MAX_ROWS = 2 * MAX_NOTIFICATIONS;
const USERS_A_STEP = 50;

/** Each step removes at most some rows, and resolves to true if there may be more. */
export function createMaintenanceStore(db: Db, { settledMs = SETTLED_MS }: { readonly settledMs?: number } = {}) {
  let after = "";
  return {
    removeOld: async (limit: number): Promise<boolean> => {
      const now = sharedNow();
      const rows = await db.query(REMOVE_OLD, [now, limit], PLANNED_EACH_TIME);
      const groups = await db.query(REMOVE_GROUPS, [now - GROUPS_KEPT_MS, limit], PLANNED_EACH_TIME);
      const users = await db.query(REMOVE_USERS, [1_000 * (now - USERS_KEPT_MS), limit], PLANNED_EACH_TIME);
      return [rows, groups, users].some(({ length }) => length === limit);
    },
    /** Removes what users have beyond their newest 1,000. Each call goes on after the users of the last one. */
    trim: async (limit: number): Promise<boolean> => {
      const users = await db.query<{ user_id: string }>(UNTRIMMED, [after, USERS_A_STEP], PLANNED_EACH_TIME);
      after = users.length < USERS_A_STEP ? "" : (users.at(-1)?.user_id ?? "");
      let removed = 0;
      for (const { user_id } of users) {
        const settled = 1_000 * (sharedNow() - settledMs);
        const rows = await db.query(TRIM, [user_id, settled, limit], PLANNED_EACH_TIME);
        removed += rows.length;
        if (rows.length < limit) await db.query(TRIMMED, [user_id, settled], PLANNED_EACH_TIME);
      }
      return after !== "" || removed >= limit;
    },
  };
}

const REMOVE_OLD = `
DELETE FROM public.notifications WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notifications WHERE expires_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1`;

const REMOVE_GROUPS = `
DELETE FROM public.notification_groups WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notification_groups WHERE changed_at < $1 AND NOT pending LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING 1`;

/** A later position of the user is greater than the last one also without the row: it is a time. */
const REMOVE_USERS = `
DELETE FROM public.notification_users WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notification_users WHERE position < $1::bigint LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1`;

const UNTRIMMED = `
SELECT user_id FROM public.notification_users WHERE added >= 100 AND user_id > $1 ORDER BY user_id LIMIT $2`;

const lastKept = (rows: number, condition = ""): string => `
  (SELECT position FROM public.notifications WHERE user_id = $1 ${condition} ORDER BY position DESC OFFSET ${rows} LIMIT 1)`;

const BEYOND = `greatest(${lastKept(MAX_NOTIFICATIONS, "AND state = 1")}, ${lastKept(MAX_ROWS)})`;

const TRIM = `
DELETE FROM public.notifications WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notifications WHERE user_id = $1 AND position < $2::bigint AND position <= ${BEYOND}
  LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING 1`;

/** Users with younger rows than that are looked at again. */
const TRIMMED = `
UPDATE public.notification_users u SET added = 0 WHERE user_id = $1 AND NOT EXISTS (
  SELECT FROM public.notifications n WHERE n.user_id = $1 AND n.position >= $2::bigint AND n.position <= ${BEYOND})`;
