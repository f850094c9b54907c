import { type Db, NOW } from "../platform/db/db.js";
import { KEY_LIFETIME_MS } from "./drops/drops.sql.js";
import { FIRST_ID } from "./drops/ids.js";
import { FETCHES_COUNTED_MS } from "./remote/fetches.sql.js";

const TOMBSTONES = 500;

interface DropCleanup {
  /** Each resolves to the number of removed rows, or to more. */
  readonly removeReposts: (originals: readonly string[], limit: number) => Promise<number>;
  readonly removeReactions: (ids: readonly string[], limit: number) => Promise<number>;
}

/** Each step removes at most `limit` rows and resolves to their number. */
export function createCleanupStore(db: Db, { removeReposts, removeReactions }: DropCleanup) {
  const removed = async (sql: string, ...params: readonly number[]): Promise<number> =>
    (await db.query(sql, params)).length;
  /** Removes the rows of deleted drops: first their reposts, which get tombstones and events, then all others. */
  const purge = async (ids: readonly string[], limit: number): Promise<number> => {
    const reposted = await removeReposts(ids, limit);
    if (reposted > 0) return reposted;
    const reactions = await removeReactions(ids, limit);
    // The statement waited for transactions that counted these reactions: no counts come after it.
    if (reactions === limit) return reactions;
    return reactions + (await db.query(FINISH_PURGE, [ids])).length;
  };
  return {
    purge,
    pruneKeys: (limit: number): Promise<number> => removed(PRUNE_KEYS, KEY_LIFETIME_MS, limit),
    pruneRemoteObjects: (expiredForMs: number, limit: number): Promise<number> =>
      removed(PRUNE_REMOTE_OBJECTS, expiredForMs, limit),
    /** Removes remote drops created before a time, and tombstones of those deleted before it. */
    pruneRemoteDrops: (before: number, limit: number): Promise<number> => removed(PRUNE_REMOTE_DROPS, before, limit),
    pruneFetches: (limit: number): Promise<number> => removed(PRUNE_FETCHES, FETCHES_COUNTED_MS, limit),
    purgeTombstones: async (limit: number): Promise<number> => {
      const rows = await db.query<{ dropId: string }>(UNPURGED, [TOMBSTONES]);
      const ids = rows.map(({ dropId }) => dropId);
      return ids.length === 0 ? 0 : purge(ids, limit);
    },
  };
}

/** Deletes rows by ctid, whatever the estimates. A clock that is no subquery would keep the index from being used. */
const pruning = (table: string, old: string, before = `(SELECT ${NOW} - $1::bigint)`): string => `
DELETE FROM posts.${table} WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM posts.${table} WHERE ${old} < ${before} LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING 1`;

const PRUNE_KEYS = pruning("idempotency", "created_at");
const PRUNE_REMOTE_OBJECTS = pruning("remote_objects", "kind <> 1 AND expires_at");
const PRUNE_FETCHES = pruning("fetches", "until");
const PRUNE_REMOTE_DROPS = pruning("remote_objects", "kind = 1 AND greatest(created_at, deleted_at)", "$1::bigint");

const UNPURGED = `
SELECT drop_id AS "dropId" FROM posts.drops WHERE deleted_at IS NOT NULL AND NOT purged ORDER BY drop_id LIMIT $1`;

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
), remote AS (
  DELETE FROM posts.remote_reactions WHERE object = ANY (ARRAY(SELECT drop_id::text COLLATE "C" FROM done))
)
SELECT drop_id FROM done`;

const TASK = "upkeep";

/** The lease is a row that runs out, because an advisory lock would need a connection of its own. */
export function createMaintenanceLease(db: Db) {
  return {
    /** Takes or renews the lease; resolves to false while another process holds it. */
    hold: async (holder: string, leaseMs: number): Promise<boolean> => {
      const rows = await db.query(
        `INSERT INTO posts.upkeep AS u (task, holder, held_until) VALUES ('${TASK}', $1, ${NOW} + $2::bigint)
         ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
         WHERE u.held_until < ${NOW} OR u.holder = excluded.holder RETURNING 1`,
        [holder, leaseMs],
      );
      return rows.length > 0;
    },
    release: async (holder: string): Promise<void> => {
      await db.query(`UPDATE posts.upkeep SET held_until = 0 WHERE task = '${TASK}' AND holder = $1`, [holder]);
    },
    walkedTo: async (): Promise<string> => {
      const rows = await db.query<{ walkedTo: string }>(
        `SELECT walked_to AS "walkedTo" FROM posts.upkeep WHERE task = '${TASK}'`,
      );
      return rows[0]?.walkedTo ?? FIRST_ID;
    },
    walkTo: async (dropId: string): Promise<void> => {
      await db.query(
        `INSERT INTO posts.upkeep (task, walked_to) VALUES ('${TASK}', $1)
         ON CONFLICT (task) DO UPDATE SET walked_to = excluded.walked_to`,
        [dropId],
      );
    },
  };
}
