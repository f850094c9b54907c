import pg from "pg";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { backoff, pause, SECOND } from "../../kernel/time.js";
import { noteRefusal, Refusal } from "../refusals.js";
import type { Db, Queries } from "./db.js";
import { databaseError, retryConflicts, SQLSTATE, sqlState } from "./errors.js";
import { type Lent, openPool, ReportingClient } from "./pool.js";

export interface PostgresOptions {
  readonly url: string;
  /** The connection that listens comes on top. */
  readonly poolSize: number;
  readonly name: string;
  /** A statement is answered within this time. */
  readonly answerMs?: number;
  /** A connection that only reads from a server that takes no writes is replaced after this time. */
  readonly staysReadOnlyMs?: number;
}

const CONNECT_TIMEOUT_MS = 5 * SECOND;
const STATEMENT_TIMEOUT_MS = 30 * SECOND;
/** A server that is there has given the statement up before. */
const ANSWER_MS = STATEMENT_TIMEOUT_MS + 5 * SECOND;
/** Ends the wait for a script whose server is gone: it has no other bound here. */
const KEEPALIVE_AFTER_MS = 30 * SECOND;
const STAYS_READ_ONLY_MS = 5 * SECOND;
const LOGGED_EACH_MS = 10 * SECOND;
const INT8 = 20;

const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: "text" | "binary") =>
    oid === INT8 ? Number : pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
};

export const settingsOf = (url: string, name: string) => ({
  connectionString: url,
  application_name: name,
  connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  statement_timeout: STATEMENT_TIMEOUT_MS,
  keepAlive: true,
  keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS,
});

/** Connects at the first statement; a connection that breaks, or turns read-only, is replaced. */
export function openPostgres(options: PostgresOptions, log: Logger): Db {
  const { url, poolSize, name, answerMs = ANSWER_MS, staysReadOnlyMs = STAYS_READ_ONLY_MS } = options;
  const settings = { ...settingsOf(url, name), types };
  const listener = createListener(() => new ReportingClient(settings), log);
  const leftReadOnly = () => listener.renewAfter(staysReadOnlyMs);
  const pool = openPool({ ...settings, max: poolSize }, { staysReadOnlyMs, leftReadOnly, log });
  const names = new Map<string, string>();
  const sessionOn = (lent: Lent): Session => ({ lent, answerMs, names });
  const db: Db = {
    query: (...query) => asked(() => pool.lend((lent) => queryOn(sessionOn(lent), ...query))),
    run: (text) => asked(() => pool.lend(async (lent) => void (await lent.query({ text })))),
    transaction: (work) => asked(() => pool.lend((lent) => transact(sessionOn(lent), work))),
    listen: listener.listen,
    close: async () => {
      await Promise.all([listener.close(), pool.close()]);
    },
  };
  const note = createNote(db, log);
  const asked = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      const result = await retryConflicts(work);
      note(undefined);
      return result;
    } catch (error) {
      if (error instanceof Refusal) note(error);
      throw error;
    }
  };
  return db;
}

/** Other statements may succeed: one that the role may not run is logged, and does not make the process not ready. */
function createNote(db: Db, log: Logger) {
  let quietUntil = 0;
  return (refusal: Refusal | undefined): void => {
    if (sqlState(refusal?.cause) !== SQLSTATE.insufficientPrivilege) return noteRefusal(db, refusal, log);
    const now = performance.now();
    if (now >= quietUntil) log.error({ error: oneLine(refusal) }, "the database refuses a statement; its work waits");
    quietUntil = now + LOGGED_EACH_MS;
  };
}

interface Session {
  readonly lent: Lent;
  readonly answerMs: number;
  /**
   * Each text of a statement has a name. A connection prepares it once: planning over partitions costs more than
   * running.
   */
  readonly names: Map<string, string>;
}

async function queryOn<Row>(
  { lent, answerMs, names }: Session,
  ...[sql, params = [], planned]: Parameters<Queries["query"]>
): Promise<Row[]> {
  const query = { text: sql, values: [...params], query_timeout: answerMs };
  if (planned?.eachTime) return (await lent.query(query)).rows as Row[];
  const name = names.get(sql) ?? `s${names.size}`;
  names.set(sql, name);
  return (await lent.query({ ...query, name })).rows as Row[];
}

async function transact<Result>(session: Session, work: (queries: Queries) => Promise<Result>): Promise<Result> {
  const { lent, answerMs } = session;
  const command = (text: string) => lent.query({ text, query_timeout: answerMs } as pg.QueryConfig);
  try {
    await command("BEGIN");
    const result = await work({
      query: (...query) => queryOn(session, ...query),
      run: async (text) => void (await lent.query({ text })),
    });
    await command("COMMIT");
    return result;
  } catch (error) {
    // A connection that breaks here leaves the pool as any other.
    if (!lent.isBroken()) await command("ROLLBACK").catch(() => undefined);
    throw error;
  }
}

/** Connects at the first `listen`, and again whenever the connection ends. */
function createListener(newClient: () => ReportingClient, log: Logger) {
  const channels = new Map<string, () => void>();
  let connection: Promise<ReportingClient> | undefined;
  let closed = false;

  const connect = async (): Promise<ReportingClient> => {
    const client = newClient();
    client.on("notification", ({ channel }) => channels.get(channel)?.());
    client.on("error", (error) => log.debug({ error: error.message }, "the listening connection ended"));
    try {
      await client.connect();
      for (const channel of channels.keys()) await client.query(`LISTEN ${channel}`);
    } catch (error) {
      connection = undefined;
      await client.end().catch(() => undefined);
      throw databaseError(error);
    }
    client.once("end", () => {
      connection = undefined;
      if (!closed) void reconnect();
    });
    return client;
  };

  const reconnect = async (): Promise<void> => {
    for (let tries = 1; !closed; tries++) {
      await pause(backoff(tries, SECOND / 5, 5 * SECOND));
      try {
        connection ??= connect();
        await connection;
        // Notifications sent meanwhile are lost.
        for (const heard of channels.values()) heard();
        return;
      } catch (error) {
        if (tries === 1) log.warn({ error: (error as Error).message }, "the database's notifications are unavailable");
      }
    }
  };

  return {
    async listen(channel: string, heard: () => void): Promise<void> {
      channels.set(channel, heard);
      connection ??= connect();
      await (await connection).query(`LISTEN ${channel}`);
    },
    /** Connects again: the server of this connection may be the one that takes no writes any more. */
    renewAfter(ms: number): void {
      void connection?.then((client) => (client.ageMs > ms ? client.end() : undefined)).catch(() => undefined);
    },
    async close(): Promise<void> {
      closed = true;
      const client = await connection?.catch(() => undefined);
      await client?.end();
    },
  };
}
