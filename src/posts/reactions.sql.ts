import type { EventDraft } from "../contracts/outbox.js";
import type { Db } from "../platform/db/db.js";
import { spanOf } from "./drop-ids.js";
import type { ReactionKey } from "./events.js";
import { NOW, Parameters, VERSION } from "./statement.js";

export interface DropCounts {
  readonly dropId: string;
  readonly likes: number;
  readonly shares: number;
  readonly replies: number;
}

export function createReactionStore(db: Db) {
  return {
    react: async (
      { dropId, kind, actorId }: ReactionKey,
      active: boolean,
      event: EventDraft,
    ): Promise<{ found: boolean; changed: boolean }> => {
      const parameters = new Parameters();
      const key = [parameters.add(dropId, "uuid"), parameters.add(kind, "text"), parameters.add(actorId, "text")];
      const changed = active ? activate(key) : deactivate(key);
      // A deletion of the drop waits for the lock, so that no reaction comes after it.
      const text = `
        WITH target AS (
          SELECT drop_id FROM posts.drops WHERE drop_id = ${key[0]} AND deleted_at IS NULL FOR SHARE
        ), changed AS (${changed}), event AS (${parameters.insertEvent(event, "changed", VERSION)})
        SELECT EXISTS (SELECT FROM target) AS found, EXISTS (SELECT FROM changed) AS changed`;
      const rows = await db.query<{ found: boolean; changed: boolean }>(text, parameters.values);
      return rows[0] ?? { found: false, changed: false };
    },
    counts: (ids: readonly string[]): Promise<DropCounts[]> => db.query<DropCounts>(COUNTS, [ids, ...spanOf(ids)]),
  };
}

const activate = ([, kind, actor]: readonly string[]): string => `
  INSERT INTO posts.reactions AS r (drop_id, kind, actor_id, active, version, changed_at)
  SELECT drop_id, ${kind}, ${actor}, true, 1, ${NOW} FROM target
  ON CONFLICT (drop_id, kind, actor_id) DO UPDATE
    SET active = true, version = r.version + 1, changed_at = excluded.changed_at WHERE NOT r.active
  RETURNING version`;

const deactivate = ([drop, kind, actor]: readonly string[]): string => `
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
  FROM target WHERE r.drop_id = ${drop} AND r.kind = ${kind} AND r.actor_id = ${actor} AND r.active
  RETURNING r.version`;

/** BETWEEN excludes the partitions that contain none of these ids. */
const COUNTS = `
SELECT c.drop_id AS "dropId", c.likes, c.shares, c.replies FROM posts.counts c
WHERE c.drop_id = ANY($1::uuid[]) AND c.drop_id BETWEEN $2::uuid AND $3::uuid
  AND EXISTS (
    SELECT FROM posts.drops d
    WHERE d.drop_id = c.drop_id AND d.deleted_at IS NULL AND d.drop_id BETWEEN $2::uuid AND $3::uuid
  )`;

export type CountReactions = (reactions: readonly ReactionKey[]) => Promise<void>;

/** Adds the difference between a row's state and its counted state, under the row's lock: it may run twice. */
export function createCountReactions(db: Db): CountReactions {
  return async (reactions) => {
    const byKey = new Map(reactions.map((reaction) => [keyOf(reaction), reaction]));
    const sorted = [...byKey.keys()].sort().map((key) => byKey.get(key) as ReactionKey);
    const ids = sorted.map(({ dropId }) => dropId);
    const kinds = sorted.map(({ kind }) => kind);
    const actors = sorted.map(({ actorId }) => actorId);
    await db.query(COUNT, [ids, kinds, actors, ...spanOf(ids)]);
  };
}

const keyOf = ({ dropId, kind, actorId }: ReactionKey): string => `${dropId} ${kind} ${actorId}`;

const sum = (kind: string): string => `coalesce(sum(delta) FILTER (WHERE kind = '${kind}'), 0)::integer`;

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
