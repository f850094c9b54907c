import pg from "pg";
import type { Logger } from "../../kernel/logger.js";
import { backoff, pause, SECOND } from "../../kernel/time.js";
import { noteRefusal, Refusal } from "../refusals.js";
import type { Db, Queries } from "./db.js";
import { databaseError, isUnanswered, retryConflicts } from "./errors.js";

export interface PostgresOptions {
  readonly url: string;
  /** The connection that listens comes on top. */
  readonly poolSize: number;
  readonly name: string;
  /** A statement is answered within this time. */
  readonly answerMs?: number;
}

const CONNECT_TIMEOUT_MS = 5 * SECOND;
const STATEMENT_TIMEOUT_MS = 30 * SECOND;
/** A server that is there has given the statement up before. */
const ANSWER_MS = STATEMENT_TIMEOUT_MS + 5 * SECOND;
/** Ends the wait for a script whose server is gone: it has no other bound here. */
const KEEPALIVE_AFTER_MS = 30 * SECOND;
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

/** Connects at the first statement; a connection that breaks is replaced. */
export function openPostgres({ url, poolSize, name, answerMs = ANSWER_MS }: PostgresOptions, log: Logger): Db {
  const settings = { ...settingsOf(url, name), types };
  const pool = new pg.Pool({ ...settings, max: poolSize });
  // The end of an idle connection would end the process if there were no listener.
  pool.on("error", (error) => log.debug({ error: error.message }, "an idle database connection ended"));
  const listener = createListener(() => new pg.Client(settings), log);
  const session = { connection: pool, answerMs, names: new Map<string, string>() };
  const db: Db = {
    query: (...query) => asked(() => queryOn(session, ...query)),
    run: (script) => asked(async () => void (await pool.query(script))),
    transaction: (work) => asked(() => transact(session, work)),
    listen: listener.listen,
    close: async () => {
      await Promise.all([listener.close(), pool.end()]);
    },
  };
  const asked = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      const result = await retryConflicts(work);
      noteRefusal(db, undefined, log);
      return result;
    } catch (error) {
      if (error instanceof Refusal) noteRefusal(db, error, log);
      throw error;
    }
  };
  return db;
}

interface Session {
  readonly connection: Pick<pg.ClientBase, "query"> | pg.Pool;
  readonly answerMs: number;
  /**
   * Each text of a statement has a name. A connection prepares it once: planning over partitions costs more than
   * running.
   */
  readonly names: Map<string, string>;
}

async function queryOn<Row>(
  { connection, answerMs, names }: Session,
  ...[sql, params = [], planned]: Parameters<Queries["query"]>
): Promise<Row[]> {
  const query = { text: sql, values: [...params], query_timeout: answerMs };
  if (planned?.eachTime) return (await connection.query(query)).rows as Row[];
  const name = names.get(sql) ?? `s${names.size}`;
  names.set(sql, name);
  return (await connection.query({ ...query, name })).rows as Row[];
}

async function transact<Result>(
  session: Session & { readonly connection: pg.Pool },
  work: (queries: Queries) => Promise<Result>,
): Promise<Result> {
  const { answerMs } = session;
  const client = await session.connection.connect();
  const command = (text: string) => client.query({ text, query_timeout: answerMs } as pg.QueryConfig);
  let broken: Error | undefined;
  const onError = (error: Error): void => {
    broken = error;
  };
  client.on("error", onError);
  try {
    await command("BEGIN");
    const result = await work({
      query: (...query) => queryOn({ ...session, connection: client }, ...query),
      run: async (script) => void (await client.query(script)),
    });
    await command("COMMIT");
    return result;
  } catch (error) {
    if (isUnanswered(error)) broken = error;
    else
      await command("ROLLBACK").catch((rollback: Error) => {
        broken = rollback;
      });
    throw error;
  } finally {
    client.off("error", onError);
    client.release(broken);
  }
}

/** Connects at the first `listen`, and again whenever the connection ends. */
function createListener(newClient: () => pg.Client, log: Logger): Pick<Db, "listen" | "close"> {
  const channels = new Map<string, () => void>();
  let connection: Promise<pg.Client> | undefined;
  let closed = false;

  const connect = async (): Promise<pg.Client> => {
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
    async listen(channel, heard) {
      channels.set(channel, heard);
      connection ??= connect();
      await (await connection).query(`LISTEN ${channel}`);
    },
    async close() {
      closed = true;
      const client = await connection?.catch(() => undefined);
      await client?.end();
    },
  };
}
