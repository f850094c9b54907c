import type { Db } from "../platform/db/db.js";
import { spanOf } from "./drop-ids.js";
import type { CountReactions, ReactionKey } from "./ports.js";

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
