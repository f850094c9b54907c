import { draftIn, type EventDraft, insertEvents, withVersion } from "../../contracts/outbox.js";
import type { Counts } from "../../gen/avion/posts.js";
import { HOUR } from "../../kernel/time.js";
import { type Db, NOW } from "../../platform/db/db.js";
import { erasedConflict, notErased } from "../drops/erased.sql.js";
import type { Like, ReactionKey } from "../drops/events.js";
import { spanOf } from "../drops/ids.js";

export type ReactionStore = ReturnType<typeof createReactionStore>;

export function createReactionStore(db: Pick<Db, "query">) {
  /** Adds the difference between a row's state and its counted state, under the row's lock: it may run twice. */
  const count = async (reactions: readonly ReactionKey[]): Promise<void> => {
    await db.query(COUNT, keysOf(reactions));
  };
  return {
    count,
    /** @throws AppError `conflict` if the user is erased */
    like: async ({ like, active, counted, told }: Liked): Promise<{ found: boolean; changed: boolean }> => {
      const { drop_id, kind, actor_id } = like;
      const change = active ? "activate" : "deactivate";
      const [row] = await (told === undefined
        ? db.query<Reacted>(REACT.remote[change], [drop_id, kind, actor_id, counted])
        : db.query<Reacted>(REACT.local[change], [drop_id, kind, actor_id, counted, told]));
      if (row?.erased) throw erasedConflict("user_id");
      return row ?? { found: false, changed: false };
    },
    isActive: async ({ drop_id, kind, actor_id }: ReactionKey): Promise<boolean> =>
      (await db.query(IS_ACTIVE, [drop_id, kind, actor_id])).length > 0,
    counts: (ids: readonly string[]): Promise<Counts[]> => db.query<Counts>(COUNTS, [ids, ...spanOf(ids)]),
    remoteCounts: (uris: readonly string[]): Promise<Counts[]> => db.query<Counts>(REMOTE_COUNTS, [uris]),
    /** Removes at most `limit` reactions to drops of these ids. Resolves to their number. */
    removeOf: async (ids: readonly string[], limit: number): Promise<number> =>
      (await db.query(REMOVE_OF, [ids, limit])).length,
    /** Returns the next drops after an id that have counts or reactions, each with about how many reactions it has. */
    next: (after: string, limit: number): Promise<{ readonly drop_id: string; readonly reactions: number }[]> =>
      db.query(NEXT, [after, limit]),
    /**
     * Compares counts with the counted reactions, which change in the same statement: a difference is always an error.
     */
    calibrate: async (ids: readonly string[]): Promise<Calibration> => {
      const checked = await db.query<Checked>(CALIBRATE, [ids, ...spanOf(ids)]);
      const overdue = checked.filter((drop) => drop.overdue > 0).map(({ drop_id }) => drop_id);
      const late = overdue.length === 0 ? [] : await db.query<ReactionKey>(LATE, [overdue]);
      if (late.length > 0) await count(late);
      return { corrected: checked.filter(({ drifted }) => drifted).length, overdue: late.length };
    },
  };
}

interface Liked {
  readonly like: Like;
  readonly active: boolean;
  readonly counted: EventDraft;
  /** Undefined for a remote drop: its author is told by another server. */
  readonly told: EventDraft | undefined;
}

interface Reacted {
  readonly found: boolean;
  readonly changed: boolean;
  readonly erased: boolean;
}

/** A repost has no reactions. */
const LOCAL_TARGET = `
  SELECT drop_id, user_id FROM posts.drops
  WHERE drop_id = $1 AND deleted_at IS NULL AND repost_of IS NULL AND ${notErased("$3")} FOR SHARE`;

const REMOTE_TARGET = `
  SELECT drop_id FROM posts.remote_objects
  WHERE drop_id = $1 AND kind = 1 AND deleted_at IS NULL AND ${notErased("$3")} FOR SHARE`;

/** A deletion of the drop waits for the lock, so that no reaction comes after it. */
const react = (target: string, change: string, events = ""): string => `
WITH target AS (${target}), changed AS (${change}), event AS (
  ${insertEvents("reactions", withVersion(draftIn("$4::json"), "version"), "changed")}
)${events}
SELECT EXISTS (SELECT FROM target) AS found, EXISTS (SELECT FROM changed) AS changed, NOT ${notErased("$3")} AS erased`;

const ACTIVATE = `
  INSERT INTO posts.reactions AS r (drop_id, kind, actor_id, active, version, changed_at)
  SELECT drop_id, $2, $3, true, 1, ${NOW} FROM target
  ON CONFLICT (drop_id, kind, actor_id) DO UPDATE
    SET active = true, version = r.version + 1, changed_at = excluded.changed_at WHERE NOT r.active
  RETURNING version`;

const DEACTIVATE = `
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
  FROM target WHERE r.drop_id = $1 AND r.kind = $2 AND r.actor_id = $3 AND r.active
  RETURNING r.version`;

const TOLD = withVersion(draftIn("$5::json"), "version");
const TOLD_BODY = `((${TOLD.body})::jsonb || jsonb_build_object('author_id', user_id, 'version', version))::text`;

const TELL = `, telling AS (
  ${insertEvents("activity", { ...TOLD, body: TOLD_BODY }, "changed CROSS JOIN target")}
)`;

const reactTo = (target: string, events?: string) => ({
  activate: react(target, ACTIVATE, events),
  deactivate: react(target, DEACTIVATE, events),
});

const REACT = { local: reactTo(LOCAL_TARGET, TELL), remote: reactTo(REMOTE_TARGET) };

const IS_ACTIVE = "SELECT FROM posts.reactions WHERE drop_id = $1 AND kind = $2 AND actor_id = $3 AND active";

/** BETWEEN excludes the partitions that contain none of these ids. */
const COUNTS = `
SELECT c.drop_id, c.likes, c.shares, c.replies FROM posts.counts c
WHERE c.drop_id = ANY($1::uuid[]) AND c.drop_id BETWEEN $2::uuid AND $3::uuid
  AND EXISTS (
    SELECT FROM posts.drops d
    WHERE d.drop_id = c.drop_id AND d.deleted_at IS NULL AND d.drop_id BETWEEN $2::uuid AND $3::uuid
  )`;

const REMOTE_COUNTS = `
SELECT o.uri AS drop_id, c.likes, c.shares, c.replies FROM posts.remote_objects o
CROSS JOIN LATERAL (SELECT * FROM posts.counts c WHERE c.drop_id = o.drop_id LIMIT 1) c
WHERE o.uri = ANY ($1::text[]) AND o.deleted_at IS NULL`;

const keyOf = ({ drop_id, kind, actor_id }: ReactionKey): string => `${drop_id} ${kind} ${actor_id}`;

/**
 * Returns the columns of distinct keys in the order in which their rows are locked, and their lowest and highest drop.
 */
export function keysOf(reactions: readonly ReactionKey[]) {
  const byKey = new Map(reactions.map((reaction) => [keyOf(reaction), reaction]));
  const sorted = [...byKey.keys()].sort().map((key) => byKey.get(key) as ReactionKey);
  const ids = sorted.map(({ drop_id }) => drop_id);
  const kinds = sorted.map(({ kind }) => kind);
  const actors = sorted.map(({ actor_id }) => actor_id);
  return [ids, kinds, actors, ...spanOf(ids)] as const;
}

/** Locks rows in the order of {@link keysOf}, whose result are the parameters. */
export const lockedReactions = (condition: string): string => `
  SELECT r.* FROM unnest($1::uuid[], $2::text[], $3::text[]) AS asked (drop_id, kind, actor_id)
  CROSS JOIN LATERAL (
    SELECT drop_id, kind, actor_id FROM posts.reactions r
    WHERE r.drop_id = asked.drop_id AND r.kind = asked.kind AND r.actor_id = asked.actor_id AND ${condition}
      AND r.drop_id BETWEEN $4::uuid AND $5::uuid
    LIMIT 1 FOR UPDATE
  ) r`;

const sum = (kind: string): string => `coalesce(sum(delta) FILTER (WHERE kind = '${kind}'), 0)::integer`;

const COUNT = `
WITH locked AS (${lockedReactions("r.counted <> r.active")}), moved AS (
  UPDATE posts.reactions r SET delta = r.active::integer - r.counted::integer, counted = r.active
  FROM locked l
  WHERE r.drop_id = l.drop_id AND r.kind = l.kind AND r.actor_id = l.actor_id AND r.counted <> r.active
    AND r.drop_id BETWEEN $4::uuid AND $5::uuid
  RETURNING r.drop_id, r.kind, r.delta
), sums AS (
  SELECT drop_id, ${sum("like")} AS likes, ${sum("share")} AS shares, ${sum("reply")} AS replies
  FROM moved GROUP BY drop_id ORDER BY drop_id
)
INSERT INTO posts.counts AS c (drop_id, likes, shares, replies, delta)
SELECT drop_id, greatest(likes, 0), greatest(shares, 0), greatest(replies, 0), ARRAY[likes, shares, replies] FROM sums
ORDER BY drop_id
ON CONFLICT (drop_id) DO UPDATE SET
  likes = greatest(c.likes + excluded.delta[1], 0),
  shares = greatest(c.shares + excluded.delta[2], 0),
  replies = greatest(c.replies + excluded.delta[3], 0)`;

const OVERDUE_MS = HOUR;
const MAX_OVERDUE = 1_000;

export interface Calibration {
  readonly corrected: number;
  /** The number of reactions counted now, since their event had not arrived after an hour. */
  readonly overdue: number;
}

interface Checked {
  readonly drop_id: string;
  readonly overdue: number;
  readonly drifted: boolean;
}

/** Walks from drop to drop through the index of reactions, without reading all reactions of a drop. */
const NEXT = `
WITH RECURSIVE reacted AS (
  (SELECT drop_id, 1 AS step FROM posts.reactions WHERE drop_id > $1::uuid ORDER BY drop_id LIMIT 1)
  UNION ALL
  SELECT (SELECT r.drop_id FROM posts.reactions r WHERE r.drop_id > reacted.drop_id ORDER BY r.drop_id LIMIT 1), step + 1
  FROM reacted WHERE drop_id IS NOT NULL AND step < $2
), either AS (
  (SELECT drop_id FROM posts.counts WHERE drop_id > $1::uuid ORDER BY drop_id LIMIT $2)
  UNION
  SELECT drop_id FROM reacted WHERE drop_id IS NOT NULL
)
SELECT either.drop_id, coalesce(c.likes + c.shares + c.replies, 0) AS reactions
FROM (SELECT drop_id FROM either ORDER BY drop_id LIMIT $2) either
LEFT JOIN LATERAL (SELECT * FROM posts.counts c WHERE c.drop_id = either.drop_id LIMIT 1) c ON true
ORDER BY either.drop_id`;

const OVERDUE = `r.counted <> r.active AND r.changed_at < ${NOW} - ${OVERDUE_MS}`;

const counted = (kind: string): string => `count(*) FILTER (WHERE r.kind = '${kind}' AND r.counted)`;

/** Deleted drops are being purged. Counts that changed since they were compared are left for the next round. */
const CALIBRATE = `
WITH checked AS (
  SELECT d.drop_id, actual.*, c.likes AS old_likes, c.shares AS old_shares, c.replies AS old_replies,
    (actual.likes, actual.shares, actual.replies)
      <> (coalesce(c.likes, 0), coalesce(c.shares, 0), coalesce(c.replies, 0)) AS drifted
  FROM (
    SELECT drop_id, deleted_at FROM posts.drops WHERE drop_id = ANY($1::uuid[]) AND drop_id BETWEEN $2::uuid AND $3::uuid
    UNION ALL
    SELECT drop_id, deleted_at FROM posts.remote_objects WHERE drop_id = ANY($1::uuid[])
  ) d
  LEFT JOIN LATERAL (SELECT likes, shares, replies FROM posts.counts c WHERE c.drop_id = d.drop_id LIMIT 1) c ON true
  CROSS JOIN LATERAL (
    SELECT ${counted("like")} AS likes, ${counted("share")} AS shares, ${counted("reply")} AS replies,
      count(*) FILTER (WHERE ${OVERDUE}) AS overdue
    FROM posts.reactions r WHERE r.drop_id = d.drop_id
  ) actual
  WHERE d.deleted_at IS NULL
), inserted AS (
  INSERT INTO posts.counts (drop_id, likes, shares, replies)
  SELECT drop_id, likes, shares, replies FROM checked WHERE drifted AND old_likes IS NULL
  ON CONFLICT DO NOTHING
), updated AS (
  UPDATE posts.counts c SET likes = k.likes, shares = k.shares, replies = k.replies FROM checked k
  WHERE k.drifted AND c.drop_id = k.drop_id AND c.drop_id BETWEEN $2::uuid AND $3::uuid
    AND (c.likes, c.shares, c.replies) = (k.old_likes, k.old_shares, k.old_replies)
)
SELECT drop_id, overdue, drifted FROM checked WHERE drifted OR overdue > 0`;

const LATE = `
SELECT r.drop_id, r.kind, r.actor_id FROM posts.reactions r
WHERE r.drop_id = ANY($1::uuid[]) AND ${OVERDUE} LIMIT ${MAX_OVERDUE}`;

const REMOVE_OF = `
DELETE FROM posts.reactions r USING (
  SELECT r.drop_id, r.kind, r.actor_id FROM posts.reactions r WHERE r.drop_id = ANY($1::uuid[])
  ORDER BY r.drop_id, r.kind, r.actor_id LIMIT $2 FOR UPDATE
) old
WHERE r.drop_id = old.drop_id AND r.kind = old.kind AND r.actor_id = old.actor_id
RETURNING 1`;
