import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import pg from "pg";
import { oneLine } from "../../kernel/errors.js";
import { tryLockFile } from "../../kernel/lock-file.js";
import { SECOND } from "../../kernel/time.js";
import { printableAddress } from "../../kernel/urls.js";
import { databaseError } from "../../platform/db/errors.js";
import { type MigrationSource, pendingMigrations } from "../../platform/db/migrate.js";
import { settingsOf } from "../../platform/db/postgres.js";
import { adviceOn } from "../../platform/refusals.js";
import { type About, type Check, checked, type Finding, versionFinding } from "./doctor.js";

const OLDEST = "15";
/**
 * The bound counts two processes of users, posts and analysis, one of rewards, and one more during a rolling update.
 */
const PROCESSES = 8;
const NOTIFICATION_MS = 2 * SECOND;
const CHANNEL = "avion_doctor";

interface DatabaseCheckOptions {
  readonly url: string;
  readonly poolSize: number;
  readonly migrations: readonly MigrationSource[];
}

/** Checks PostgreSQL: reachable, new enough, with our schema, enough connections, and a session for each of them. */
export function databaseChecks(options: DatabaseCheckOptions): Check[] {
  const advice = (error: unknown): string =>
    adviceOn(error, "start PostgreSQL there, or set DATABASE_URL to where it is");
  return [checked(`PostgreSQL ${hostOf(options.url)}`, advice, (server) => examinePostgres(server, options))];
}

/** The folder of a Unix socket is a parameter of the URL. */
function hostOf(url: string): string {
  return new URL(url).searchParams.get("host") ?? printableAddress(url);
}

async function examinePostgres(server: About, options: DatabaseCheckOptions): Promise<readonly Finding[]> {
  const clients = [0, 1].map(() => new pg.Client(settingsOf(options.url, "avion-timeline doctor")));
  const [first, other] = clients as [pg.Client, pg.Client];
  // Queries of a broken connection reject, which is enough.
  for (const client of clients) client.on("error", () => undefined);
  try {
    await Promise.all(clients.map((client) => client.connect()));
    return [
      versionFinding(server, await setting(first, "server_version"), OLDEST),
      ...(await writeFindings(server, first)),
      await schemaFinding(server, first, options.migrations),
      await connectionFinding(server, first, options.poolSize),
      await preparedFinding(server, first, other),
      await notificationFinding(server, first, other),
    ];
  } catch (error) {
    throw databaseError(error);
  } finally {
    await Promise.all(clients.map((client) => client.end().catch(() => undefined)));
  }
}

async function setting(client: pg.Client, name: string): Promise<string> {
  const { rows } = await client.query<{ value: string }>("SELECT current_setting($1) AS value", [name]);
  return rows[0]?.value ?? "";
}

/** Migrations create schemas, and the role posts a partition for each month. */
const MAY_WRITE = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS "isReadOnly",
  has_database_privilege(current_database(), 'CREATE')
    OR (to_regclass('public.avion_migrations') IS NOT NULL AND coalesce(has_schema_privilege(to_regnamespace('posts'), 'CREATE'), false)) AS "mayCreate"`;

async function writeFindings(server: About, client: pg.Client): Promise<Finding[]> {
  const { rows } = await client.query<{ isReadOnly: boolean; mayCreate: boolean }>(MAY_WRITE);
  const name = "let DATABASE_URL name the primary, and let it take writes";
  const grant = "GRANT CREATE ON DATABASE, and let the role own the schemas: posts creates a partition for each month";
  return [
    ...(rows[0]?.isReadOnly ? [server.fault("takes no writes: it is a standby or read-only", name)] : []),
    ...(rows[0]?.mayCreate ? [] : [server.fault("its role lacks the right CREATE", grant)]),
  ];
}

async function schemaFinding(
  server: About,
  client: pg.Client,
  migrations: readonly MigrationSource[],
): Promise<Finding> {
  const queries = {
    query: async <Row>(sql: string, params: readonly unknown[] = []) =>
      (await client.query(sql, [...params])).rows as Row[],
    run: async (script: string) => void (await client.query(script)),
  };
  try {
    const pending = await pendingMigrations(queries, migrations);
    if (pending.length === 0) return server.ok("schema of this version");
    const advice = "the service applies them when it starts";
    return server.warning(`${pending.length} migrations are not applied`, advice);
  } catch (error) {
    const advice = "start the version of the service that made this schema, or a newer one";
    return server.fault(oneLine(error), advice);
  }
}

async function connectionFinding(server: About, client: pg.Client, poolSize: number): Promise<Finding> {
  const limit = Number(await setting(client, "max_connections"));
  const reserved = Number(await setting(client, "superuser_reserved_connections"));
  const processes = Math.floor((limit - reserved) / (poolSize + 1));
  const says = `max_connections ${limit} is enough for ${processes} processes of ${poolSize} + 1 connections`;
  if (processes >= PROCESSES) return server.ok(says);
  return server.warning(says, "raise max_connections, or lower TIMELINE_DATABASE_POOL_SIZE");
}

const SESSIONS = "connect to PostgreSQL itself, or let the pooler keep a session for each connection";

/** While another connection is in a transaction, a pooler in transaction mode gives this one another session. */
async function preparedFinding(server: About, first: pg.Client, other: pg.Client): Promise<Finding> {
  const ask = (value: number) =>
    first.query({ name: "avion_doctor", text: "SELECT $1::int AS value", values: [value] });
  try {
    await ask(1);
    await other.query("BEGIN");
    await other.query("SELECT 1");
    await ask(2);
    await other.query("COMMIT");
    await ask(3);
    return server.ok("keeps prepared statements");
  } catch (error) {
    return server.fault(`loses prepared statements (${oneLine(error)})`, SESSIONS);
  }
}

async function notificationFinding(server: About, first: pg.Client, other: pg.Client): Promise<Finding> {
  try {
    const heard = new Promise<boolean>((resolveHeard) => {
      first.once("notification", () => resolveHeard(true));
      setTimeout(() => resolveHeard(false), NOTIFICATION_MS).unref();
    });
    await first.query(`LISTEN ${CHANNEL}`);
    await other.query(`NOTIFY ${CHANNEL}`);
    if (await heard) return server.ok("delivers notifications");
    return server.fault("does not deliver a NOTIFY to another connection", SESSIONS);
  } catch (error) {
    return server.fault(`LISTEN or NOTIFY failed (${oneLine(error)})`, SESSIONS);
  }
}

/** Checks the folder of the embedded database: writable, and not open in another process. */
export function folderChecks(folder: string): Check[] {
  const advice = "name a folder by TIMELINE_DATA_DIR that this user can write, or set DATABASE_URL";
  return [
    checked(`embedded database ${folder}`, advice, async (database) => {
      await access(await nearestFolder(resolve(folder)), constants.W_OK | constants.X_OK);
      if (!(await stat(folder).catch(() => undefined))) return [database.ok("is made when the service starts")];
      const lock = await tryLockFile(`${folder}.lock`);
      if (lock.taken) {
        await lock.release();
        return [database.ok("is writable")];
      }
      const says = `is open in process ${lock.holder.pid}`;
      return [database.warning(says, "it is for one process at a time: set DATABASE_URL for more")];
    }),
  ];
}

async function nearestFolder(path: string): Promise<string> {
  for (let folder = path; ; folder = dirname(folder)) {
    if (await stat(folder).catch(() => undefined)) return folder;
  }
}
