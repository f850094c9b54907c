import { HOUR } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { spanOf } from "./drop-ids.js";
import type { ReactionKey } from "./events.js";
import type { CountReactions, DropCounts } from "./reactions.sql.js";
import { NOW } from "./statement.js";

const OVERDUE_MS = HOUR;
const MAX_OVERDUE = 1_000;

export interface Calibration {
  readonly corrected: number;
  /** Reactions whose event had not arrived after an hour, counted now. */
  readonly overdue: number;
}

/** A drop's counted reactions, and the counts that are stored, both of one moment. */
interface Checked extends DropCounts {
  readonly overdue: number;
  readonly storedLikes: number | null;
  readonly storedShares: number | null;
  readonly storedReplies: number | null;
}

export type CalibrationStore = ReturnType<typeof createCalibrationStore>;

/** Compares counts with the counted reactions, which change in the same statement: a difference is always an error. */
export function createCalibrationStore(db: Db, count: CountReactions) {
  return {
    /** The next drops after an id that have counts or reactions, with about how many reactions each. */
    next: (after: string, limit: number): Promise<{ readonly dropId: string; readonly reactions: number }[]> =>
      db.query(NEXT, [after, limit]),
    calibrate: async (ids: readonly string[]): Promise<Calibration> => {
      const checked = await db.query<Checked>(CHECK, [ids, ...spanOf(ids)]);
      const drifted = checked.filter(isDrifted);
      for (const drop of drifted) await correct(db, drop);
      const overdue = checked.filter((drop) => drop.overdue > 0).map(({ dropId }) => dropId);
      const late = overdue.length === 0 ? [] : await db.query<ReactionKey>(LATE, [overdue]);
      if (late.length > 0) await count(late);
      return { corrected: drifted.length, overdue: late.length };
    },
  };
}

function isDrifted(drop: Checked): boolean {
  const stored = [drop.storedLikes ?? 0, drop.storedShares ?? 0, drop.storedReplies ?? 0];
  return [drop.likes, drop.shares, drop.replies].some((actual, index) => actual !== stored[index]);
}

/** Counts that changed since they were compared are left for the next round. */
async function correct(db: Db, drop: Checked): Promise<void> {
  const actual = [drop.dropId, drop.likes, drop.shares, drop.replies];
  if (drop.storedLikes === null) {
    await db.query(
      "INSERT INTO posts.counts (drop_id, likes, shares, replies) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
      actual,
    );
    return;
  }
  await db.query(
    `UPDATE posts.counts SET likes = $2, shares = $3, replies = $4
     WHERE drop_id = $1 AND likes = $5 AND shares = $6 AND replies = $7`,
    [...actual, drop.storedLikes, drop.storedShares, drop.storedReplies],
  );
}

/** Steps from drop to drop through the index of reactions, without reading all reactions of a drop. */
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
SELECT either.drop_id AS "dropId", coalesce(c.likes + c.shares + c.replies, 0) AS reactions
FROM (SELECT drop_id FROM either ORDER BY drop_id LIMIT $2) either
LEFT JOIN LATERAL (SELECT * FROM posts.counts c WHERE c.drop_id = either.drop_id LIMIT 1) c ON true
ORDER BY either.drop_id`;

const OVERDUE = `r.counted <> r.active AND r.changed_at < ${NOW} - ${OVERDUE_MS}`;

const counted = (kind: string): string => `count(*) FILTER (WHERE r.kind = '${kind}' AND r.counted)`;

/** Deleted drops are left out: their reactions and counts are being removed. */
const CHECK = `
SELECT d.drop_id AS "dropId", actual.*, c.likes AS "storedLikes", c.shares AS "storedShares", c.replies AS "storedReplies"
FROM posts.drops d
LEFT JOIN LATERAL (SELECT likes, shares, replies FROM posts.counts c WHERE c.drop_id = d.drop_id LIMIT 1) c ON true
CROSS JOIN LATERAL (
  SELECT ${counted("like")} AS likes, ${counted("share")} AS shares, ${counted("reply")} AS replies,
    count(*) FILTER (WHERE ${OVERDUE}) AS overdue
  FROM posts.reactions r WHERE r.drop_id = d.drop_id
) actual
WHERE d.drop_id = ANY($1::uuid[]) AND d.drop_id BETWEEN $2::uuid AND $3::uuid AND d.deleted_at IS NULL`;

const LATE = `
SELECT r.drop_id AS "dropId", r.kind, r.actor_id AS "actorId" FROM posts.reactions r
WHERE r.drop_id = ANY($1::uuid[]) AND ${OVERDUE} LIMIT ${MAX_OVERDUE}`;
