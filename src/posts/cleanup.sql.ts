import type { Db } from "../platform/db/db.js";
import { KEY_LIFETIME_MS } from "./create-statement.js";
import { FIRST_ID } from "./drop-ids.js";
import type { CleanupStore, UpkeepLease } from "./ports.js";
import { NOW } from "./statement.js";

/** Deleted drops that are purged at once. */
const TOMBSTONES = 500;

/** Removes what is no longer needed. */
export function createCleanupStore(db: Db): CleanupStore {
  const removed = async (sql: string, ...params: readonly number[]): Promise<number> =>
    (await db.query(sql, params)).length;
  return {
    pruneKeys: (limit) => removed(PRUNE_KEYS, KEY_LIFETIME_MS, limit),
    pruneRemoteObjects: (expiredForMs, limit) => removed(PRUNE_REMOTE_OBJECTS, expiredForMs, limit),
    pruneRemoteDrops: (before, limit) => removed(PRUNE_REMOTE_DROPS, before, limit),
    purgeTombstones: async (limit) => {
      const rows = await db.query<{ dropId: string }>(UNPURGED, [TOMBSTONES]);
      const ids = rows.map(({ dropId }) => dropId);
      if (ids.length === 0) return 0;
      const reactions = await db.query(PURGE_REACTIONS, [ids, limit]);
      // Whoever counted one of them has been waited for: no counts come after them.
      if (reactions.length === limit) return reactions.length;
      return reactions.length + (await db.query(FINISH_PURGE, [ids])).length;
    },
  };
}

/**
 * Deletes rows of a table by where they are, whatever the planner thinks of how many there are. The clock is asked in a
 * query of its own: compared with directly it would keep the index from being used, as it never stands still.
 */
const pruning = (table: string, old: string, before = `(SELECT ${NOW} - $1::bigint)`): string => `
DELETE FROM posts.${table} WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM posts.${table} WHERE ${old} < ${before} LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING 1`;

const PRUNE_KEYS = pruning("idempotency", "created_at");
const PRUNE_REMOTE_OBJECTS = pruning("remote_objects", "kind <> 1 AND expires_at");
const PRUNE_REMOTE_DROPS = pruning("remote_objects", "kind = 1 AND greatest(created_at, deleted_at)", "$1::bigint");

const UNPURGED = `
SELECT drop_id AS "dropId" FROM posts.drops WHERE deleted_at IS NOT NULL AND NOT purged ORDER BY drop_id LIMIT $1`;

const PURGE_REACTIONS = `
DELETE FROM posts.reactions r USING (
  SELECT r.drop_id, r.kind, r.actor_id FROM posts.reactions r WHERE r.drop_id = ANY($1::uuid[])
  ORDER BY r.drop_id, r.kind, r.actor_id LIMIT $2 FOR UPDATE
) old
WHERE r.drop_id = old.drop_id AND r.kind = old.kind AND r.actor_id = old.actor_id
RETURNING 1`;

const FINISH_PURGE = `
WITH done AS (
  UPDATE posts.drops d SET purged = true
  WHERE d.drop_id = ANY($1::uuid[]) AND NOT d.purged
    AND NOT EXISTS (SELECT FROM posts.reactions r WHERE r.drop_id = d.drop_id)
  RETURNING d.drop_id
), counts AS (
  DELETE FROM posts.counts WHERE drop_id IN (SELECT drop_id FROM done)
), versions AS (
  DELETE FROM posts.revisions WHERE drop_id IN (SELECT drop_id FROM done)
)
SELECT drop_id FROM done`;

const TASK = "upkeep";

/** The lease of the upkeep: a row that runs out, since a lock of the database's would need a connection of its own. */
export function createUpkeepLease(db: Db): UpkeepLease {
  return {
    hold: async (holder, leaseMs) => {
      const rows = await db.query(
        `INSERT INTO posts.upkeep AS u (task, holder, held_until) VALUES ('${TASK}', $1, ${NOW} + $2::bigint)
         ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
         WHERE u.held_until < ${NOW} OR u.holder = excluded.holder RETURNING 1`,
        [holder, leaseMs],
      );
      return rows.length > 0;
    },
    release: async (holder) => {
      await db.query(`UPDATE posts.upkeep SET held_until = 0 WHERE task = '${TASK}' AND holder = $1`, [holder]);
    },
    walkedTo: async () => {
      const rows = await db.query<{ walkedTo: string }>(
        `SELECT walked_to AS "walkedTo" FROM posts.upkeep WHERE task = '${TASK}'`,
      );
      return rows[0]?.walkedTo ?? FIRST_ID;
    },
    walkTo: async (dropId) => {
      await db.query(
        `INSERT INTO posts.upkeep (task, walked_to) VALUES ('${TASK}', $1)
         ON CONFLICT (task) DO UPDATE SET walked_to = excluded.walked_to`,
        [dropId],
      );
    },
  };
}
