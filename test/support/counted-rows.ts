import type { Db, Queries } from "../../src/platform/db/db.js";

/** Includes work of earlier transactions of the session that is not reported yet: only a difference counts. */
const SO_FAR = `
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::int AS read,
  coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int AS written
FROM pg_stat_xact_user_tables`;

/** Name of a transaction in the place of a statement. */
export const TRANSACTION = "a transaction";

/** Numbers of rows that the database fetched from tables, and that it wrote. */
export interface CountedRows {
  readonly read: number;
  readonly written: number;
}

/**
 * Returns the same database. It tells `counted` of each statement by itself and of each transaction, once it has done its
 * work and before it is committed: it is committed when `counted` has resolved. Rows of an index alone are not counted.
 */
export function countingRows(db: Db, counted: (rows: CountedRows, sql: string) => unknown): Db {
  const soFar = async (queries: Queries): Promise<CountedRows> =>
    (await queries.query<CountedRows>(SO_FAR))[0] ?? { read: 0, written: 0 };
  const counting = <Result>(sql: string, work: (queries: Queries) => Promise<Result>): Promise<Result> =>
    db.transaction(async (queries) => {
      const before = await soFar(queries);
      const result = await work(queries);
      const after = await soFar(queries);
      await counted({ read: after.read - before.read, written: after.written - before.written }, sql);
      return result;
    });
  return {
    ...db,
    query: (sql, params, planned) => counting(sql, (queries) => queries.query(sql, params, planned)),
    transaction: (work) => counting(TRANSACTION, work),
  };
}
