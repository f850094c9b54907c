import type { Db, Queries } from "../platform/db/db.js";
import { type ListName, TABLES, type Table } from "./reads.sql.js";

export interface Drift {
  readonly list: ListName;
  readonly user: string;
  readonly counted: number;
  readonly rows: number;
}

/** The key of the advisory lock is the bytes of "users". */
const LOCK = 0x75_73_65_72_73;

/** A statement counts at most so many rows. */
const PAGE = 20_000;

/** SKIP LOCKED: an edge that is being changed is not old. */
const prune = ({ edges, owner, other }: Table): string => `
WITH old AS (
  SELECT ${owner}, ${other} FROM ${edges} WHERE NOT active AND changed_at < users.now_ms() - $1::bigint
  ORDER BY changed_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM ${edges} e USING old WHERE (e.${owner}, e.${other}) = (old.${owner}, old.${other}) RETURNING 1
)
SELECT count(*) AS gone FROM gone`;

/** The sample has about ten times the rows wanted, or the whole table where its size is unknown or small. */
const PERCENT = `
SELECT least(100, 1000.0 * $1::int / greatest(reltuples, 1))::real AS percent FROM pg_class WHERE oid = $2::regclass`;

/** Selects users whose count differs from their rows, and those with more rows than a page. */
const toCount = ({ edges, counts, count, owner }: Table): string => `
SELECT c.user_id AS "user"
FROM (SELECT * FROM ${counts} TABLESAMPLE SYSTEM ($1::real) ORDER BY random() LIMIT $2) c
CROSS JOIN LATERAL (
  SELECT count(*) AS rows FROM (SELECT FROM ${edges} WHERE ${owner} = c.user_id AND active LIMIT $3::int + 1) AS first
) AS found
WHERE found.rows > $3 OR found.rows <> c.${count}`;

const SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";
const readCount = ({ counts, count }: Table): string =>
  `SELECT ${count} AS counted, corrections FROM ${counts} WHERE user_id = $1`;
const countPage = ({ edges, owner, other }: Table): string => `
SELECT count(*) AS read, count(*) FILTER (WHERE active) AS active, max(${other}) AS last
FROM (SELECT ${other}, active FROM ${edges} WHERE ${owner} = $1 AND ${other} > $2 ORDER BY ${other} LIMIT $3) AS page`;
const correct = ({ counts, count }: Table): string => `
UPDATE ${counts} SET ${count} = GREATEST(${count} + $2, 0), corrections = corrections + 1
WHERE user_id = $1 AND corrections = $3 RETURNING 1`;

export type MaintenanceStore = ReturnType<typeof createMaintenanceStore>;

/** Each step does nothing while another process runs it. */
export function createMaintenanceStore(db: Db, pageSize = PAGE) {
  return {
    prune: async (list: ListName, keptMs: number, limit: number): Promise<number> => {
      const gone = await underLock(db, ({ query }) => query<{ gone: number }>(prune(TABLES[list]), [keptMs, limit]));
      return gone?.[0]?.gone ?? 0;
    },
    /** Returns users whose counts are to be compared with their rows, some of `sample`. */
    toCount: async (list: ListName, sample: number): Promise<readonly string[]> => {
      const table = TABLES[list];
      const users = await underLock(db, async ({ query }) => {
        const [row] = await query<{ percent: number }>(PERCENT, [sample, table.counts]);
        return query<{ user: string }>(toCount(table), [row?.percent ?? 100, sample, pageSize]);
      });
      return (users ?? []).map(({ user }) => user);
    },
    /**
     * Corrects a count by its difference from the rows, which changes of the list leave as it is: none waits meanwhile.
     * Of two processes that find the difference one corrects it.
     */
    calibrate: async (list: ListName, user: string, stopping?: AbortSignal): Promise<Drift | undefined> => {
      const found = await countRows(db, { list, user, pageSize, stopping });
      if (found === undefined || found.counted === found.rows) return undefined;
      const { counted, rows, corrections } = found;
      const corrected = await db.query(correct(TABLES[list]), [user, rows - counted, corrections]);
      return corrected.length === 0 ? undefined : { list, user, counted, rows };
    },
  };
}

/** Resolves to undefined while another process holds the lock. */
function underLock<Result>(db: Db, work: (queries: Queries) => Promise<Result>): Promise<Result | undefined> {
  return db.transaction(async (queries) => {
    const [row] = await queries.query<{ taken: boolean }>("SELECT pg_try_advisory_xact_lock($1) AS taken", [LOCK]);
    return row?.taken ? work(queries) : undefined;
  });
}

interface CountedPage {
  readonly read: number;
  readonly active: number;
  readonly last: string;
}
const EMPTY: CountedPage = { read: 0, active: 0, last: "" };

interface Counting {
  readonly list: ListName;
  readonly user: string;
  readonly pageSize: number;
  readonly stopping: AbortSignal | undefined;
}

/**
 * Reads the count and the rows at one time, for a list of any length. Resolves to undefined where the read was broken
 * off.
 */
function countRows(db: Db, { list, user, pageSize, stopping }: Counting) {
  const table = TABLES[list];
  return db.transaction(async ({ run, query }) => {
    await run(SNAPSHOT);
    const [held] = await query<{ counted: number; corrections: number }>(readCount(table), [user]);
    let rows = 0;
    for (let after: string | undefined = ""; after !== undefined; ) {
      if (held === undefined || stopping?.aborted) return undefined;
      const pages: CountedPage[] = await query(countPage(table), [user, after, pageSize]);
      const [{ read, active, last } = EMPTY] = pages;
      rows += active;
      after = read === pageSize ? last : undefined;
    }
    return held && { ...held, rows };
  });
}
