/** How PostgreSQL plans a statement. */
export interface HowPlanned {
  /** A plan that is kept fits the tables as they were when it was made: an idle queue's scans a full one. */
  readonly eachTime: boolean;
}

/** Statements, on a database or inside a transaction. int8 arrives as a number: nothing here counts beyond 2^53. */
export interface Queries {
  /**
   * Runs one statement and returns its rows.
   *
   * @throws AppError `unavailable` where the database is away or gives no connection; the database's own error otherwise
   */
  query<Row>(sql: string, params?: readonly unknown[], how?: HowPlanned): Promise<Row[]>;
  /** Runs a script of several statements, without parameters. */
  run(script: string): Promise<void>;
}

/** The database, whichever it is: PostgreSQL by its address, or embedded PGlite. */
export interface Db extends Queries {
  /**
   * Runs `work` in one transaction and commits it; a rejection rolls it back. What lost against another transaction
   * (deadlock, serialization) is run again, so `work` must change nothing but the database.
   */
  transaction<Result>(work: (queries: Queries) => Promise<Result>): Promise<Result>;
  /**
   * Calls `heard` after each NOTIFY on a channel, and after the connection was lost and is back, since NOTIFYs
   * may have been missed meanwhile. Resolves once it listens.
   */
  listen(channel: string, heard: () => void): Promise<void>;
  close(): Promise<void>;
}

/** The names of what went wrong that callers decide by (PostgreSQL, Appendix A: SQLSTATE). */
export const SQLSTATE = {
  uniqueViolation: "23505",
  /** Of a CHECK, and of a row for which a partitioned table has no partition. */
  checkViolation: "23514",
  lockNotAvailable: "55P03",
  /** Refused by a function of ours; see RAISE in the migrations. */
  raised: "P0001",
} as const;

/** The SQLSTATE of an error; undefined where it is none of the database's. */
export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}
