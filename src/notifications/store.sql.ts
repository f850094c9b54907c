import { setImmediate as nextTurn } from "node:timers/promises";
import { NotificationKind } from "../gen/avion/notifications.js";
import { DAY, sharedNow } from "../kernel/time.js";
import { type Db, PLANNED_EACH_TIME } from "../platform/db/db.js";
import { type Change, keyOf, newestOf, slotOf } from "./changes.js";

/** Maximum number of notifications of a user. */
export const MAX_NOTIFICATIONS = 1_000;
/** Rows that one transaction of a deletion changes. Others of the same user wait for it. */
const ROWS_A_STEP = 1_000;
const KEPT_MS = 90 * DAY;
/** A row that is not shown decides about late events. The log keeps events for seven days. */
const VERSION_KEPT_MS = 8 * DAY;

/** A notification that a list shows. */
export interface Shown {
  readonly position: number;
  readonly kind: NotificationKind;
  readonly actor: string;
  readonly drop: string;
}

/** A notification that a message has made; written again, the message makes the same. */
export interface Made extends Shown {
  readonly user: string;
  readonly change: Change;
}

interface Row {
  readonly user_id: string;
  readonly kind: NotificationKind;
  readonly actor_id: string;
  readonly drop_id: string;
  readonly position: number;
  readonly state: number;
  readonly seq: number;
}

export interface ListOptions {
  readonly kinds: readonly NotificationKind[];
  readonly below: number;
  readonly limit: number;
}

export type NotificationStore = ReturnType<typeof createNotificationStore>;

/** Everything rejects with AppError `unavailable` while the database is unavailable. */
export function createNotificationStore(db: Db) {
  return {
    /** Writes changes in one statement. The newest of each key counts. Resolves to the notifications that they make. */
    write: async (changes: readonly Change[]): Promise<Made[]> => {
      const newest = newestOf(changes);
      if (newest.length === 0) return [];
      const given = JSON.stringify(newest.map(rowOf));
      const people = [...new Set(newest.flatMap(({ user, actor }) => [user, actor]))];
      const rows = await db.transaction(({ query }) => query<Row>(WRITE, [given, people], PLANNED_EACH_TIME));
      const byKey = new Map(newest.map((change) => [keyOf(change), change]));
      return rows.flatMap((row) => {
        const made = { ...shownOf(row), user: row.user_id };
        const change = byKey.get(keyOf(made));
        // A change that is written again may be inactive by now: its actor is hidden meanwhile.
        if (!change?.active || row.seq !== change.seq || row.kind !== change.kind) return [];
        return row.state === SHOWN ? [{ ...made, change }] : [];
      });
    },
    /** Takes back what tells of drops, and what these drops made. */
    removeDrops: async (drops: readonly string[]): Promise<void> => {
      const ids = [...new Set(drops)].filter((id) => !id.includes("\0"));
      if (ids.length === 0) return;
      const inSteps = async (sql: string, ...params: readonly unknown[]): Promise<void> => {
        for (let count = ROWS_A_STEP; count === ROWS_A_STEP; await nextTurn())
          count = (await db.transaction(({ query }) => query(sql, params, PLANNED_EACH_TIME))).length;
      };
      await inSteps(REMOVE_OF_DROPS, ids);
      await inSteps(TAKE_BACK_BY, ids, sharedNow() + VERSION_KEPT_MS);
    },
    /** Reads the newest notifications below a position, among the newest 1,000. */
    list: async (user: string, { kinds, below, limit }: ListOptions): Promise<Shown[]> =>
      (await db.query<Row>(LIST, [user, below, [...kinds], limit], PLANNED_EACH_TIME)).map(shownOf),
    readUpTo: async (user: string): Promise<number> => {
      const sql = "SELECT read_up_to FROM public.notification_users WHERE user_id = $1";
      return (await db.query<{ read_up_to: number }>(sql, [user]))[0]?.read_up_to ?? 0;
    },
    /** Moves the mark up, to the last position of the user at most. `upTo` of the result: the mark, if it is this one. */
    markRead: async (user: string, upTo: number): Promise<{ changed: boolean; upTo: number | undefined }> => {
      const [moved] = await db.query<{ read_up_to: number }>(MARK_READ, [user, upTo]);
      if (moved) return { changed: true, upTo: moved.read_up_to };
      const [same] = await db.query<{ read_up_to: number }>(SAME_MARK, [user, upTo]);
      return { changed: false, upTo: same?.read_up_to };
    },
  };
}

const SHOWN = 1;

const shownOf = ({ position, kind, actor_id: actor, drop_id: drop }: Row): Shown => ({ position, kind, actor, drop });

const rowOf = ({
  user,
  actor,
  drop,
  byDrop,
  isSilent: _,
  parent_author: __,
  isForFollowers: ___,
  ...change
}: Change) => ({
  ...change,
  user_id: user,
  slot: slotOf(change.kind),
  actor_id: actor,
  drop_id: drop,
  by_drop: byDrop,
  version: String(change.version),
  expires_at: change.at + (change.active ? KEPT_MS : VERSION_KEPT_MS),
});

const IS_NEWER = "((excluded.version, excluded.rank) > (n.version, n.rank))";
const IS_NEW = `(${IS_NEWER} AND excluded.state = 1 AND (n.state = 0 OR n.kind <> excluded.kind))`;

const takenIf = (condition: string, ...columns: readonly string[]): string =>
  columns.map((column) => `${column} = CASE WHEN ${condition} THEN excluded.${column} ELSE n.${column} END`).join(", ");

/**
 * The row of a user in notification_users is locked first, so that positions are committed in their order. A row that
 * was shown before keeps its place: nobody is told twice, however often it is done again.
 *
 * The erased are left out by an array. The planner would expect an anti-join to leave one row, and then compare each row
 * with each, which takes two thirds of the statement.
 */
const WRITE = `
WITH gone AS (
  SELECT user_id FROM public.erased_notifications WHERE user_id = ANY ($2)
), w AS (
  SELECT * FROM json_to_recordset($1::json) AS given (
    user_id text, kind smallint, slot smallint, actor_id text, drop_id text, by_drop text, version bigint,
    rank smallint, active boolean, at bigint, seq bigint, expires_at bigint)
  WHERE user_id <> ALL (ARRAY(SELECT user_id FROM gone)) AND actor_id <> ALL (ARRAY(SELECT user_id FROM gone))
), u AS (
  INSERT INTO public.notification_users AS u (user_id, position, previous, read_up_to, added)
  SELECT user_id, 1000 * max(at) + count(*), 0, 0, count(*) FROM w GROUP BY user_id ORDER BY user_id
  ON CONFLICT (user_id) DO UPDATE SET previous = u.position, added = u.added + excluded.added,
    position = greatest(u.position + excluded.added, excluded.position)
  RETURNING user_id, previous
), p AS (
  SELECT n.*, greatest(u.previous, 1000 * n.at) + n.nth AS position
  FROM (SELECT w.*, row_number() OVER (PARTITION BY user_id ORDER BY at, seq) AS nth FROM w) n JOIN u USING (user_id)
), r AS (
  INSERT INTO public.notifications AS n
    (user_id, kind, slot, actor_id, drop_id, by_drop, version, rank, state, position, seq, expires_at)
  SELECT user_id, kind, slot, actor_id, drop_id, by_drop, version, rank, active::int, position, seq, expires_at
  FROM p ORDER BY drop_id, user_id, slot, actor_id
  ON CONFLICT (drop_id, user_id, slot, actor_id) DO UPDATE SET
    ${takenIf(IS_NEW, "kind", "position", "seq")},
    ${takenIf(IS_NEWER, "version", "rank", "by_drop", "expires_at")},
    state = CASE WHEN NOT ${IS_NEWER} THEN n.state WHEN excluded.state = 1 THEN 1 WHEN n.state = 0 THEN 0 ELSE 2 END
  RETURNING user_id, kind, slot, actor_id, drop_id, position, state, seq
), g AS (
  INSERT INTO public.notification_groups AS g
    (drop_id, user_id, kind, total, told, told_position, told_at, pending, changed_at)
  SELECT r.drop_id, r.user_id, r.kind, max(p.at) + count(*), max(p.at), min(p.position) - 1, 0, false, max(p.at)
  FROM r JOIN p USING (drop_id, user_id, slot, actor_id)
  WHERE r.state = 1 AND r.position = p.position AND r.kind IN (${NotificationKind.LIKE}, ${NotificationKind.REPOST})
  GROUP BY r.drop_id, r.user_id, r.kind ORDER BY r.drop_id, r.user_id, r.kind
  ON CONFLICT (drop_id, user_id, kind) DO UPDATE
  SET total = g.total + excluded.total - excluded.told, changed_at = greatest(g.changed_at, excluded.changed_at)
)
SELECT user_id, kind, actor_id, drop_id, position, state, seq FROM r`;

const REMOVE_OF_DROPS = `
WITH grouped AS (
  DELETE FROM public.notification_groups WHERE drop_id = ANY($1)
)
DELETE FROM public.notifications WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notifications WHERE drop_id = ANY($1)
  ORDER BY drop_id, user_id, slot, actor_id LIMIT ${ROWS_A_STEP} FOR UPDATE)) RETURNING 1`;

/** The row of a repost stays, so that a late event of it is known. */
const TAKE_BACK_BY = `
UPDATE public.notifications SET state = 2, expires_at = $2 WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM public.notifications WHERE by_drop = ANY($1) AND by_drop <> drop_id AND state = 1
  ORDER BY drop_id, user_id, slot, actor_id LIMIT ${ROWS_A_STEP} FOR UPDATE)) RETURNING 1`;

/** Only the newest notifications of a user are listed; the maintenance removes the others. */
const LIST = `
SELECT user_id, kind, actor_id, drop_id, position, state, seq FROM public.notifications
WHERE user_id = $1 AND state = 1 AND position < $2 AND (cardinality($3::int[]) = 0 OR kind = ANY($3::int[]))
  AND position > coalesce((SELECT position FROM public.notifications WHERE user_id = $1 AND state = 1
    ORDER BY position DESC OFFSET ${MAX_NOTIFICATIONS} LIMIT 1), 0)
ORDER BY position DESC LIMIT $4`;

const MARK_READ = `
UPDATE public.notification_users SET read_up_to = least($2::bigint, position)
WHERE user_id = $1 AND read_up_to < least($2::bigint, position) RETURNING read_up_to`;

const SAME_MARK = `
SELECT read_up_to FROM public.notification_users WHERE user_id = $1 AND read_up_to = least($2::bigint, position)`;
