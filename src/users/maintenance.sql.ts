import type { Db, Queries } from "../platform/db/db.js";
import { type ListName, TABLES, type Table } from "./reads.sql.js";

export interface Drift {
  readonly list: ListName;
  readonly user: string;
  readonly counted: number;
  readonly rows: number;
}

/** Key of an advisory lock: the bytes of "users". */
const LOCK = 0x75_73_65_72_73;

/** Counting longer lists takes too long. */
const MAX_RECOUNTED = 20_000;

/** SKIP LOCKED: an edge that is being changed is not old. */
const prune = ({ edges, owner, other }: Table): string => `
WITH old AS (
  SELECT ${owner}, ${other} FROM ${edges} WHERE NOT active AND changed_at < users.now_ms() - $1::bigint
  ORDER BY changed_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM ${edges} e USING old WHERE (e.${owner}, e.${other}) = (old.${owner}, old.${other}) RETURNING 1
)
SELECT count(*) AS gone FROM gone`;

/** About ten times the rows wanted; the whole table where its size is unknown or small. */
const PERCENT = `
SELECT least(100, 1000.0 * $1::int / greatest(reltuples, 1))::real AS percent FROM pg_class WHERE oid = $2::regclass`;

/** One statement, so that counts and rows are of one moment. */
const drifted = ({ edges, counts, count, owner }: Table): string => `
SELECT c.user_id AS "user"
FROM (SELECT * FROM ${counts} TABLESAMPLE SYSTEM ($1::real) ORDER BY random() LIMIT $2) c
CROSS JOIN LATERAL (
  SELECT count(*) AS rows FROM (SELECT FROM ${edges} WHERE ${owner} = c.user_id AND active LIMIT $3) AS first
) AS found
WHERE c.${count} < $3 AND found.rows <> c.${count}`;

const lockCount = ({ counts, count }: Table): string =>
  `SELECT ${count} AS counted FROM ${counts} WHERE user_id = $1 FOR UPDATE`;
const countRows = ({ edges, owner }: Table): string =>
  `SELECT count(*) AS rows FROM ${edges} WHERE ${owner} = $1 AND active`;
const setCount = ({ counts, count, counted }: Table): string =>
  `UPDATE ${counts} SET ${count} = $2${counted.next} WHERE user_id = $1`;

export type MaintenanceStore = ReturnType<typeof createMaintenanceStore>;

/** Each step does nothing while another process runs it. */
export function createMaintenanceStore(db: Db) {
  return {
    prune: async (list: ListName, keptMs: number, limit: number): Promise<number> => {
      const gone = await underLock(db, ({ query }) => query<{ gone: number }>(prune(TABLES[list]), [keptMs, limit]));
      return gone?.[0]?.gone ?? 0;
    },
    calibrate: async (list: ListName, sample: number): Promise<Drift[]> => {
      const table = TABLES[list];
      const users = await underLock(db, async ({ query }) => {
        const [row] = await query<{ percent: number }>(PERCENT, [sample, table.counts]);
        return query<{ user: string }>(drifted(table), [row?.percent ?? 100, sample, MAX_RECOUNTED]);
      });
      const drifts: Drift[] = [];
      for (const { user } of users ?? []) {
        const drift = await db.transaction((queries) => correctCount(queries, list, user));
        if (drift) drifts.push(drift);
      }
      return drifts;
    },
  };
}

/** Undefined while another process holds the lock. */
function underLock<Result>(db: Db, work: (queries: Queries) => Promise<Result>): Promise<Result | undefined> {
  return db.transaction(async (queries) => {
    const [row] = await queries.query<{ taken: boolean }>("SELECT pg_try_advisory_xact_lock($1) AS taken", [LOCK]);
    return row?.taken ? work(queries) : undefined;
  });
}

/** A transaction that is about to change rows waits for the count's lock, and then changes the corrected count. */
async function correctCount({ query }: Queries, list: ListName, user: string): Promise<Drift | undefined> {
  const table = TABLES[list];
  const [held] = await query<{ counted: number }>(lockCount(table), [user]);
  const [found] = await query<{ rows: number }>(countRows(table), [user]);
  if (held === undefined || found === undefined || held.counted === found.rows) return undefined;
  await query(setCount(table), [user, found.rows]);
  return { list, user, counted: held.counted, rows: found.rows };
}
