import { createBatch } from "../../kernel/sharing.js";
import { SECOND } from "../../kernel/time.js";
import { SQLSTATE, sqlState } from "./errors.js";

const ROWS_AT_ONCE = 100;

/** A write that takes longer, because it waits for a lock or the database does not answer, holds up no other. */
const OVERTAKEN_AFTER_MS = SECOND / 4;

/** A statement with rows of several callers waits for a lock for a shorter time. */
export const LOCK_TIMEOUT_MS = { alone: 5 * SECOND, shared: SECOND / 4 };

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

interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

/**
 * Returns a function that makes the statement for some rows. `build` gets the first parts of its WITH, of which `w` has
 * the rows. One row is passed as one parameter a field; several are passed as one JSON text, since their number varies.
 */
export function statementOf<Row extends Readonly<Record<keyof Row, unknown>>>(
  types: Readonly<Record<keyof Row & string, string>>,
  build: (given: string) => string,
): (rows: readonly Row[], lockTimeoutMs?: number) => Statement {
  const columns = Object.entries(types) as [keyof Row & string, string][];
  const fields = columns.map(([name, type], index) => `$${index + 2}::${type} AS ${name}`).join(", ");
  const record = columns.map(([name, type]) => `${name} ${type}`).join(", ");
  const bounded = "bounded AS MATERIALIZED (SELECT set_config('lock_timeout', $1, true))";
  const single = build(`${bounded}, w AS NOT MATERIALIZED (SELECT ${fields} FROM bounded)`);
  const several = build(
    `${bounded}, w AS (SELECT given.* FROM bounded CROSS JOIN json_to_recordset($2::json) AS given (${record}))`,
  );
  return (rows, lockTimeoutMs = rows.length > 1 ? LOCK_TIMEOUT_MS.shared : LOCK_TIMEOUT_MS.alone) => {
    const [first, second] = rows;
    const timeout = String(lockTimeoutMs);
    if (first !== undefined && second === undefined)
      return { text: single, values: [timeout, ...columns.map(([name]) => first[name])] };
    return { text: several, values: [timeout, JSON.stringify(rows)] };
  };
}
