import { HOUR } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { spanOf } from "./drop-ids.js";
import type { Calibrate, CountReactions, DropCounts, ReactionKey } from "./ports.js";
import { NOW } from "./statement.js";

/** After this time an event has been lost. */
const OVERDUE_MS = HOUR;
const MAX_OVERDUE = 1_000;

/**
 * Brings reactions into the counts. What is added is the difference between what a row says and what was counted of it,
 * found under the row's lock and noted with it: any number of processes may do so, in any order, and again.
 */
export function createCountReactions(db: Db): CountReactions {
  return async (reactions) => {
    const each = new Map(reactions.map((reaction) => [keyOf(reaction), reaction]));
    // One order for everybody who locks several.
    const sorted = [...each.keys()].sort().map((key) => each.get(key) as ReactionKey);
    const ids = sorted.map(({ dropId }) => dropId);
    const kinds = sorted.map(({ kind }) => kind);
    const actors = sorted.map(({ actorId }) => actorId);
    await db.query(COUNT, [ids, kinds, actors, ...spanOf(ids)]);
  };
}

const keyOf = ({ dropId, kind, actorId }: ReactionKey): string => `${dropId} ${kind} ${actorId}`;

const sum = (kind: string): string => `coalesce(sum(delta) FILTER (WHERE kind = '${kind}'), 0)::integer`;

/** The bounds leave the partitions of these drops, of all. */
const COUNT = `
WITH locked AS (
  SELECT r.* FROM unnest($1::uuid[], $2::text[], $3::text[]) AS asked (drop_id, kind, actor_id)
  CROSS JOIN LATERAL (
    SELECT drop_id, kind, actor_id FROM posts.reactions r
    WHERE r.drop_id = asked.drop_id AND r.kind = asked.kind AND r.actor_id = asked.actor_id AND r.counted <> r.active
      AND r.drop_id BETWEEN $4::uuid AND $5::uuid
    LIMIT 1 FOR UPDATE
  ) r
), moved AS (
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

/** A drop as a calibration finds it: the counts, what they should be, both of one moment. */
interface Checked extends DropCounts {
  readonly live: boolean;
  readonly overdue: number;
  /** Null where there is no row. */
  readonly toldLikes: number | null;
  readonly toldShares: number | null;
  readonly toldReplies: number | null;
}

/**
 * Makes the calibration of counts by what is counted, not by what is active: a row and its drop's counts change in one
 * statement, so that a difference between them is a fault, whatever is under way.
 */
export function createCalibrate(db: Db, count: CountReactions): Calibrate {
  return async (after, limit) => {
    const checked = await db.query<Checked>(CHECK, [after, limit]);
    const drifted = checked.filter(isDrifted);
    for (const drop of drifted) await correct(db, drop);
    const overdue = checked.filter((drop) => drop.live && drop.overdue > 0).map(({ dropId }) => dropId);
    const late = overdue.length === 0 ? [] : await db.query<ReactionKey>(LATE, [overdue]);
    if (late.length > 0) await count(late);
    return {
      checked: checked.length,
      corrected: drifted.length,
      overdue: late.length,
      next: checked.length < limit ? undefined : checked.at(-1)?.dropId,
    };
  };
}

function isDrifted(drop: Checked): boolean {
  const told = [drop.toldLikes ?? 0, drop.toldShares ?? 0, drop.toldReplies ?? 0];
  return drop.live && [drop.likes, drop.shares, drop.replies].some((actual, index) => actual !== told[index]);
}

/** Counts that moved since they were compared are left for the next time. */
async function correct(db: Db, drop: Checked): Promise<void> {
  const actual = [drop.dropId, drop.likes, drop.shares, drop.replies];
  if (drop.toldLikes === null) {
    await db.query(
      "INSERT INTO posts.counts (drop_id, likes, shares, replies) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
      actual,
    );
    return;
  }
  await db.query(
    `UPDATE posts.counts SET likes = $2, shares = $3, replies = $4
     WHERE drop_id = $1 AND likes = $5 AND shares = $6 AND replies = $7`,
    [...actual, drop.toldLikes, drop.toldShares, drop.toldReplies],
  );
}

const OVERDUE = `r.counted <> r.active AND r.changed_at < ${NOW} - ${OVERDUE_MS}`;

const counted = (kind: string): string => `count(*) FILTER (WHERE r.kind = '${kind}' AND r.counted)`;

const CHECK = `
WITH span AS (
  SELECT drop_id FROM (
    (SELECT drop_id FROM posts.counts WHERE drop_id > $1::uuid ORDER BY drop_id LIMIT $2)
    UNION
    (SELECT DISTINCT drop_id FROM posts.reactions WHERE drop_id > $1::uuid ORDER BY drop_id LIMIT $2)
  ) either
  ORDER BY drop_id LIMIT $2
)
SELECT span.drop_id AS "dropId", d.drop_id IS NOT NULL AS live, actual.*,
  c.likes AS "toldLikes", c.shares AS "toldShares", c.replies AS "toldReplies"
FROM span
LEFT JOIN LATERAL (
  SELECT drop_id FROM posts.drops d WHERE d.drop_id = span.drop_id AND d.deleted_at IS NULL LIMIT 1
) d ON true
LEFT JOIN LATERAL (SELECT likes, shares, replies FROM posts.counts c WHERE c.drop_id = span.drop_id LIMIT 1) c ON true
CROSS JOIN LATERAL (
  SELECT ${counted("like")} AS likes, ${counted("share")} AS shares, ${counted("reply")} AS replies,
    count(*) FILTER (WHERE ${OVERDUE}) AS overdue
  FROM posts.reactions r WHERE r.drop_id = span.drop_id
) actual
ORDER BY span.drop_id`;

const LATE = `
SELECT r.drop_id AS "dropId", r.kind, r.actor_id AS "actorId" FROM posts.reactions r
WHERE r.drop_id = ANY($1::uuid[]) AND ${OVERDUE} LIMIT ${MAX_OVERDUE}`;
