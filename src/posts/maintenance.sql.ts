import { AppError } from "../kernel/errors.js";
import { DAY, SECOND } from "../kernel/time.js";
import { type Db, NOW, type Queries } from "../platform/db/db.js";
import { FETCHES_COUNTED_MS } from "./fetches.sql.js";
import { FIRST_ID, type Month, monthNamed } from "./ids.js";

/** A key makes one drop in this time. */
export const KEY_LIFETIME_MS = DAY;

const TOMBSTONES = 500;

type RemoveReposts = (originals: readonly string[], limit: number) => Promise<number>;

/** Each step removes at most `limit` rows and resolves to their number. */
export function createCleanupStore(db: Db, removeReposts: RemoveReposts) {
  const removed = async (sql: string, ...params: readonly number[]): Promise<number> =>
    (await db.query(sql, params)).length;
  const removeReactions = async (ids: readonly string[], limit: number): Promise<number> =>
    (await db.query(PURGE_REACTIONS, [ids, limit])).length;
  /** Removes what is left about some deleted drops: their reposts, which get tombstones and events, then the rest. */
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
    removeReactions,
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

/** Rows are named by ctid, whatever the estimates. A clock that is no subquery would keep the index from being used. */
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
), remote AS (
  DELETE FROM posts.remote_reactions WHERE object = ANY (ARRAY(SELECT drop_id::text COLLATE "C" FROM done))
)
SELECT drop_id FROM done`;

/** The retention starts at a time in ms since the epoch; 0 keeps all drops. */
export function createRetentionStore(db: Db) {
  const start = async (): Promise<number> => {
    const [row] = await db.query<{ start: number }>("SELECT kept_since AS start FROM posts.retention");
    return row?.start ?? 0;
  };
  return {
    start,
    raise: async (time: number): Promise<number> => {
      await db.query("UPDATE posts.retention SET kept_since = $1 WHERE kept_since < $1", [time]);
      return start();
    },
  };
}

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

/** Reads go through `drops`: a month is dropped there first. */
const TABLES = ["drops", "reactions", "revisions", "counts"] as const;

/** Rows of these are updated soon, on the same page. */
const SETTINGS: Partial<Record<(typeof TABLES)[number], string>> = {
  reactions: "WITH (fillfactor = 80)",
  counts: "WITH (fillfactor = 70)",
};

/** Waiting for this lock blocks neither reads nor writes. */
const LOCK_TIMEOUT_MS = 5 * SECOND;

/** The key of the advisory lock is the bytes of "posts". */
const LOCK = 0x70_6f_73_74_73;

type State = "attached" | "detaching" | "detached";

export type PartitionStore = ReturnType<typeof createPartitionStore>;

export function createPartitionStore(db: Db) {
  return {
    /** Says which right is missing, if one of the months has no partitions and the role may make none. */
    lack: (months: readonly Month[]): Promise<string | undefined> => lackOf(db, months),
    /**
     * Makes the missing partitions of a month; resolves to false where none is missing. @throws AppError `unavailable`
     * if the role may not
     */
    make: (month: Month): Promise<boolean> =>
      db.transaction(async (queries) => {
        await queries.run(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
        await queries.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
        const lack = await lackOf(queries, [month]);
        if (lack !== undefined) throw new AppError("unavailable", lack);
        const states = await readStates(queries, month.name);
        let made = false;
        for (const table of TABLES) {
          const state = states.get(`${table}_${month.name}`);
          if (state === "attached") continue;
          await queries.run(makeScript(table, month, state === undefined));
          made = true;
        }
        return made;
      }),
    months: async (): Promise<Month[]> => {
      const names = new Set([...(await readStates(db, "____\\___")).keys()].map((name) => name.slice(-7)));
      return [...names].sort().flatMap((name) => monthNamed(name) ?? []);
    },
    drop: async ({ name }: Month): Promise<void> => {
      const states = await readStates(db, name);
      for (const table of TABLES) {
        const partition = `${table}_${name}`;
        const state = states.get(partition);
        if (state !== undefined) await dropPartition(db, table, partition, state);
      }
    },
  };
}

async function lackOf(queries: Queries, months: readonly Month[]): Promise<string | undefined> {
  const [rights] = await queries.query<{ mayCreate: boolean; isOwner: boolean }>(RIGHTS);
  if (!rights || (rights.mayCreate && rights.isOwner)) return undefined;
  for (const { name } of months) {
    const states = await readStates(queries, name);
    if (TABLES.every((table) => states.get(`${table}_${name}`) === "attached")) continue;
    const right = rights.mayCreate ? "is not the owner of the table posts.drops" : "lacks CREATE on the schema posts";
    return `the month ${name.replace("_", "-")} has no partitions for drops, and none can be made: the database's role ${right}`;
  }
  return undefined;
}

const RIGHTS = `
SELECT has_schema_privilege('posts', 'CREATE') AS "mayCreate", pg_has_role(relowner, 'USAGE') AS "isOwner"
FROM pg_class WHERE oid = 'posts.drops'::regclass`;

/** ATTACH blocks neither reads nor writes of the parent, as PARTITION OF would (ACCESS EXCLUSIVE). */
function makeScript(table: (typeof TABLES)[number], month: Month, missing: boolean): string {
  const partition = `posts.${table}_${month.name}`;
  const create = `CREATE TABLE ${partition} (LIKE posts.${table} INCLUDING ALL) ${SETTINGS[table] ?? ""};`;
  return `${missing ? create : ""}
    ALTER TABLE posts.${table} ATTACH PARTITION ${partition} FOR VALUES FROM ('${month.firstId}') TO ('${month.endId}');`;
}

/** A process may have died after any of the three steps. */
async function dropPartition(db: Db, table: string, partition: string, state: State): Promise<void> {
  const detach = `ALTER TABLE posts.${table} DETACH PARTITION posts.${partition}`;
  if (state === "attached") await db.run(`${detach} CONCURRENTLY`);
  if (state === "detaching") await db.run(`${detach} FINALIZE`);
  await db.run(`DROP TABLE IF EXISTS posts.${partition}`);
}

async function readStates(queries: Queries, month: string): Promise<Map<string, State>> {
  const rows = await queries.query<{ name: string; state: State }>(
    `SELECT c.relname AS name,
       CASE WHEN i.inhrelid IS NULL THEN 'detached' WHEN i.inhdetachpending THEN 'detaching' ELSE 'attached' END AS state
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
     WHERE n.nspname = 'posts' AND c.relkind = 'r' AND c.relname LIKE ANY ($1::text[])`,
    [TABLES.map((table) => `${table}\\_${month}`)],
  );
  return new Map(rows.map(({ name, state }) => [name, state]));
}
