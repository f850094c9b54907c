import type { Db } from "../platform/db/db.js";
import { spanOf } from "./drop-ids.js";
import type { DropCounts, ReactionStore } from "./ports.js";
import { NOW, Parameters, VERSION } from "./statement.js";

/** Reactions to drops. */
export function createReactionStore(db: Db): ReactionStore {
  return {
    react: async ({ dropId, kind, actorId }, active, event) => {
      const parameters = new Parameters();
      const key = [parameters.add(dropId, "uuid"), parameters.add(kind, "text"), parameters.add(actorId, "text")];
      const changed = active ? set(key) : takeBack(key);
      // Whoever deletes the drop waits for the lock, so that no reaction comes after its deletion.
      const text = `
        WITH target AS (
          SELECT drop_id FROM posts.drops WHERE drop_id = ${key[0]} AND deleted_at IS NULL FOR SHARE
        ), changed AS (${changed}), told AS (${parameters.insertEvent(event, "changed", VERSION)})
        SELECT EXISTS (SELECT FROM target) AS found, EXISTS (SELECT FROM changed) AS changed`;
      const rows = await db.query<{ found: boolean; changed: boolean }>(text, parameters.values);
      return rows[0] ?? { found: false, changed: false };
    },
    counts: (ids) => db.query<DropCounts>(COUNTS, [ids, ...spanOf(ids)]),
  };
}

const set = ([, kind, actor]: readonly string[]): string => `
  INSERT INTO posts.reactions AS r (drop_id, kind, actor_id, active, version, changed_at)
  SELECT drop_id, ${kind}, ${actor}, true, 1, ${NOW} FROM target
  ON CONFLICT (drop_id, kind, actor_id) DO UPDATE
    SET active = true, version = r.version + 1, changed_at = excluded.changed_at WHERE NOT r.active
  RETURNING version`;

const takeBack = ([drop, kind, actor]: readonly string[]): string => `
  UPDATE posts.reactions r SET active = false, version = r.version + 1, changed_at = ${NOW}
  FROM target WHERE r.drop_id = ${drop} AND r.kind = ${kind} AND r.actor_id = ${actor} AND r.active
  RETURNING r.version`;

/** The bounds leave the partitions of these ids, of all. */
const COUNTS = `
SELECT c.drop_id AS "dropId", c.likes, c.shares, c.replies FROM posts.counts c
WHERE c.drop_id = ANY($1::uuid[]) AND c.drop_id BETWEEN $2::uuid AND $3::uuid
  AND EXISTS (
    SELECT FROM posts.drops d
    WHERE d.drop_id = c.drop_id AND d.deleted_at IS NULL AND d.drop_id BETWEEN $2::uuid AND $3::uuid
  )`;
