import { createBatch } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import { SQLSTATE, sqlState } from "./errors.js";

const ROWS_AT_ONCE = 100;

/** A write that takes longer, because it waits for a lock or the database does not answer, holds up no other. */
const OVERTAKEN_AFTER_MS = SECOND / 4;

const LOCK_TIMEOUT_MS = { alone: 5 * SECOND, shared: SECOND / 4 };

/**
 * Rows that are written while a statement is being committed go together into the next one. A statement that fails, or
 * meets a locked row, is repeated row by row, so that each caller gets the error of its own row.
 */
export function createSharedWrites<Row, Result>(
  write: (rows: readonly Row[]) => Promise<readonly Result[]>,
): (row: Row) => Promise<Result> {
  const writeShared = async (rows: readonly Row[]): Promise<readonly Result[]> => {
    try {
      return await write(rows);
    } catch (error) {
      const { cause } = error as { cause?: unknown };
      throw rows.length > 1 && sqlState(cause) === SQLSTATE.lockNotAvailable ? cause : error;
    }
  };
  return createBatch(ROWS_AT_ONCE, writeShared, OVERTAKEN_AFTER_MS);
}

interface GivenRows {
  /** These are the first parts of a WITH; `w` has the rows. */
  readonly parts: string;
  readonly values: readonly unknown[];
}

/**
 * Returns the beginning of a statement that reads rows of these columns. One row is passed as one parameter a field; several
 * are passed as one JSON text, since their number varies. The statement waits for a lock for a bounded time, which is
 * shorter where the rows come from several callers.
 */
export function givenRows<Row extends Readonly<Record<keyof Row, unknown>>>(
  types: Readonly<Record<keyof Row & string, string>>,
): (rows: readonly Row[], shared?: boolean) => GivenRows {
  const columns = Object.entries(types) as [keyof Row & string, string][];
  const bounded = (ms: number) => `bounded AS MATERIALIZED (SELECT set_config('lock_timeout', '${ms}', true))`;
  const fields = columns.map(([name, type], at) => `$${at + 1}::${type} AS ${name}`).join(", ");
  const one = `${bounded(LOCK_TIMEOUT_MS.alone)}, w AS NOT MATERIALIZED (SELECT ${fields} FROM bounded)`;
  const record = columns.map(([name, type]) => `${name} ${type}`).join(", ");
  const several = (ms: number) =>
    `${bounded(ms)}, w AS (SELECT given.* FROM bounded CROSS JOIN json_to_recordset($1::json) AS given (${record}))`;
  const [ofOne, ofSeveral] = [several(LOCK_TIMEOUT_MS.alone), several(LOCK_TIMEOUT_MS.shared)];
  return (rows, shared = rows.length > 1) => {
    const [first, second] = rows;
    if (first !== undefined && second === undefined)
      return { parts: one, values: columns.map(([name]) => first[name]) };
    return { parts: shared ? ofSeveral : ofOne, values: [JSON.stringify(rows)] };
  };
}
