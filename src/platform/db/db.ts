export interface HowPlanned {
  /** A kept plan fits the tables as they were when it was made: the plan of an empty queue scans a full one. */
  readonly eachTime: boolean;
}

/** On a database or in a transaction. int8 arrives as a number: no count exceeds 2^53. */
export interface Queries {
  /** @throws AppError `unavailable` while the database is away; otherwise the database's own error */
  query<Row>(sql: string, params?: readonly unknown[], how?: HowPlanned): Promise<Row[]>;
  /** Runs a script of several statements, without parameters. */
  run(script: string): Promise<void>;
}

export interface Db extends Queries {
  /**
   * Commits `work`, or rolls it back where it rejects. Work that lost against another transaction (deadlock,
   * serialization) runs again, so it must change nothing but the database.
   */
  transaction<Result>(work: (queries: Queries) => Promise<Result>): Promise<Result>;
  /**
   * Calls `heard` after each NOTIFY on a channel, and after each reconnection, since NOTIFYs may have been missed.
   * Resolves once it listens.
   */
  listen(channel: string, heard: () => void): Promise<void>;
  close(): Promise<void>;
}

/** PostgreSQL, Appendix A */
export const SQLSTATE = {
  uniqueViolation: "23505",
  /** A CHECK, or a row without a partition. */
  checkViolation: "23514",
  lockNotAvailable: "55P03",
  /** RAISE in a function of the migrations. */
  raised: "P0001",
} as const;

export function sqlState(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}
