import type { NotificationKind } from "../gen/avion/notifications.js";
import { SECOND } from "../kernel/time.js";
import { type Db, NOW, PLANNED_EACH_TIME } from "../platform/db/db.js";

/** Likes or reposts of one drop of a user. */
export interface Group {
  readonly user: string;
  readonly kind: NotificationKind;
  readonly drop: string;
}

/** An event of the stream that is due. */
export interface DueEvent extends Group {
  /** The number of the last notification of this event, which names it: two processes that publish it publish the same. */
  readonly telling: number;
  /** Number of notifications since the last event. */
  readonly count: number;
  /** The newest of these notifications; undefined if all were taken back. */
  readonly newest: { readonly position: number; readonly actor: string } | undefined;
}

/** A group has at most one event in this time. */
const TELL_EVERY_MS = SECOND;

interface ClaimedRow {
  readonly user_id: string;
  readonly kind: NotificationKind;
  readonly drop_id: string;
  readonly telling: number;
  readonly count: number;
  readonly position: number | null;
  readonly actor_id: string | null;
}

export type GroupStore = ReturnType<typeof createGroupStore>;

/** Everything rejects with AppError `unavailable` while the database is unavailable. */
export function createGroupStore(db: Db, everyMs = TELL_EVERY_MS) {
  return {
    /** Notes that events about the groups are due. */
    defer: async (groups: readonly Group[]): Promise<void> => {
      const given = groups.map(({ user, kind, drop }) => ({ user_id: user, kind, drop_id: drop }));
      await db.transaction(({ query }) => query(DEFER, [JSON.stringify(given)], PLANNED_EACH_TIME));
    },
    /**
     * Takes events that are due. One that is not confirmed within a second is taken again, with the same number.
     */
    claim: async (limit: number): Promise<DueEvent[]> => {
      const rows = await db.query<ClaimedRow>(CLAIM, [limit, everyMs], PLANNED_EACH_TIME);
      return rows.map(({ user_id: user, drop_id: drop, position, actor_id, ...rest }) => ({
        ...rest,
        user,
        drop,
        newest: position === null || actor_id === null ? undefined : { position, actor: actor_id },
      }));
    },
    /** The events are published. */
    confirm: async (events: readonly DueEvent[]): Promise<void> => {
      const given = events.map(({ user, kind, drop, telling }) => ({ user_id: user, kind, drop_id: drop, telling }));
      await db.transaction(({ query }) => query(CONFIRM, [JSON.stringify(given)], PLANNED_EACH_TIME));
    },
    /** Resolves to true if events will be due. */
    isPending: async (): Promise<boolean> =>
      (await db.query("SELECT FROM public.notification_groups WHERE pending LIMIT 1", [], PLANNED_EACH_TIME)).length >
      0,
  };
}

const GIVEN = "json_to_recordset($1::json) AS w (user_id text, kind smallint, drop_id text, telling bigint)";

/** Rows are locked in the order in which new notifications lock them. */
const LOCKED = `
l AS (
  SELECT g.drop_id, g.user_id, g.kind, w.telling FROM public.notification_groups g JOIN ${GIVEN} USING (drop_id, user_id, kind)
  ORDER BY g.drop_id, g.user_id, g.kind FOR UPDATE OF g
)`;

const DEFER = `
WITH ${LOCKED}
UPDATE public.notification_groups g SET pending = true FROM l
WHERE g.drop_id = l.drop_id AND g.user_id = l.user_id AND g.kind = l.kind AND g.total > g.told`;

const CLAIM = `
WITH c AS (
  UPDATE public.notification_groups g SET telling = coalesce(telling, total), told_at = ${NOW},
    telling_position = coalesce(telling_position,
      (SELECT u.position FROM public.notification_users u WHERE u.user_id = g.user_id), told_position)
  WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM public.notification_groups WHERE pending AND told_at <= ${NOW} - $2::bigint
    ORDER BY told_at LIMIT $1 FOR UPDATE SKIP LOCKED))
  RETURNING drop_id, user_id, kind, telling, telling - told AS count, told_position, telling_position
)
SELECT c.drop_id, c.user_id, c.kind, c.telling, c.count, n.position, n.actor_id FROM c LEFT JOIN LATERAL (
  SELECT position, actor_id FROM public.notifications n
  WHERE n.drop_id = c.drop_id AND n.user_id = c.user_id AND n.slot = c.kind AND n.state = 1
    AND n.position > c.told_position AND n.position <= c.telling_position
  ORDER BY position DESC LIMIT 1
) n ON true`;

const CONFIRM = `
WITH ${LOCKED}
UPDATE public.notification_groups g SET told = l.telling, telling = NULL, pending = g.total > l.telling,
  told_position = g.telling_position, telling_position = NULL FROM l
WHERE g.drop_id = l.drop_id AND g.user_id = l.user_id AND g.kind = l.kind AND g.telling = l.telling`;
