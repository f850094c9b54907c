/** The database's clock gives ms since the epoch. */
export const NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** A plan that is kept fits the tables as they were when it was made: that of an empty table scans a full one. */
export const PLANNED_EACH_TIME = { eachTime: true } as const;

/** int8 arrives as a number: no count exceeds 2^53. */
export interface Queries {
  /** @throws AppError `unavailable` while the database is unavailable; otherwise the database's own error */
  query<Row>(sql: string, params?: readonly unknown[], planned?: typeof PLANNED_EACH_TIME): Promise<Row[]>;
  /** Runs a migration, which may take hours: only the server bounds its statements. */
  run(script: string): Promise<void>;
}

export interface Db extends Queries {
  /** Work that lost against another transaction (deadlock, serialization) runs again: it changes only the database. */
  transaction<Result>(work: (queries: Queries) => Promise<Result>): Promise<Result>;
  /** Resolves once it listens. Calls `heard` after a reconnect, too, since NOTIFYs may have been missed. */
  listen(channel: string, heard: () => void): Promise<void>;
  close(): Promise<void>;
}

/** Reads the secret that seals page tokens, which all processes of a service share. */
export async function readPageSecret(db: Queries, schema: "users" | "posts"): Promise<string> {
  const [row] = await db.query<{ secret: string }>(`SELECT secret FROM ${schema}.page_secret`);
  if (row === undefined) throw new Error(`${schema}.page_secret has no row`);
  return row.secret;
}
