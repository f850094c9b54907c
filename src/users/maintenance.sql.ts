import type { Db, Queries } from "../platform/db/db.js";
import type { ListName } from "../state/index.js";
import { TABLES, type Table } from "./reads.sql.js";

export interface Drift {
  readonly list: ListName;
  readonly user: string;
  readonly counted: number;
  readonly rows: number;
}

/** The key of the advisory lock is the bytes of "users". */
const LOCK = 0x75_73_65_72_73;

/** Inactive rows of these are removed. An edge with a block is kept, since it refuses follows, and so is a request. */
const PRUNED = {
  following: {
    table: "users.followings",
    key: ["follower_id", "following_id"],
    inactive: "NOT (active OR blocking OR blocked_by) AND requested_at IS NULL",
  },
  followers: { table: "users.followers", key: ["following_id", "follower_id"], inactive: "NOT active" },
  relations: { table: "users.relations", key: ["user_id", "target_id", "kind"], inactive: "NOT active" },
} as const;
export type Pruned = keyof typeof PRUNED;

/** SKIP LOCKED: a row that is being changed is not old. */
const prune = ({ table, key, inactive }: (typeof PRUNED)[Pruned]): string => `
WITH old AS (
  SELECT ${key.join(", ")} FROM ${table} WHERE ${inactive} AND changed_at < users.now_ms() - $1::bigint
  ORDER BY changed_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM ${table} e USING old WHERE (${columnsOf("e", key)}) = (${columnsOf("old", key)}) RETURNING 1
)
SELECT count(*) AS gone FROM gone`;

const columnsOf = (row: string, key: readonly string[]): string => key.map((name) => `${row}.${name}`).join(", ");

/** The sample has about ten times the rows wanted, or the whole table if its size is unknown or small. */
const percent = (counts: string): string => `(
  SELECT least(100, 1000.0 * $1::int / greatest(reltuples, 1))::real FROM pg_class WHERE oid = '${counts}'::regclass
)`;

/**
 * Changes of lists leave the difference as it is. A count is locked once all are compared; one that another process has
 * corrected meanwhile is left alone.
 */
const calibrate = ({ edges, counts, count, owner }: Table): string => `
WITH found AS MATERIALIZED (
  SELECT c.user_id, c.corrections, c.${count} AS counted,
    (SELECT count(*) FROM ${edges} e WHERE e.${owner} = c.user_id AND e.active) AS rows
  FROM (SELECT * FROM ${counts} TABLESAMPLE SYSTEM (${percent(counts)}) ORDER BY random() LIMIT $1) c
  ORDER BY c.user_id
)
UPDATE ${counts} c SET ${count} = GREATEST(c.${count} + found.rows - found.counted, 0), corrections = c.corrections + 1
FROM found
WHERE c.user_id = found.user_id AND c.corrections = found.corrections AND found.counted <> found.rows
RETURNING c.user_id AS "user", found.counted, found.rows`;

export type MaintenanceStore = ReturnType<typeof createMaintenanceStore>;

/** Each step does nothing while another process runs it. */
export function createMaintenanceStore(db: Db) {
  return {
    prune: async (rows: Pruned, keptMs: number, limit: number): Promise<number> => {
      const gone = await underLock(db, ({ query }) => query<{ gone: number }>(prune(PRUNED[rows]), [keptMs, limit]));
      return gone?.[0]?.gone ?? 0;
    },
    calibrate: async (list: ListName, sample: number): Promise<Drift[]> => {
      const drifts = await underLock(db, ({ query }) => query<Omit<Drift, "list">>(calibrate(TABLES[list]), [sample]));
      return (drifts ?? []).map((drift) => ({ list, ...drift }));
    },
  };
}

function underLock<Result>(db: Db, work: (queries: Queries) => Promise<Result>): Promise<Result | undefined> {
  return db.transaction(async (queries) => {
    const [row] = await queries.query<{ taken: boolean }>("SELECT pg_try_advisory_xact_lock($1) AS taken", [LOCK]);
    return row?.taken ? work(queries) : undefined;
  });
}
