import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import pg from "pg";
import { oneLine } from "../kernel/errors.js";
import { tryLockFile } from "../kernel/lock-file.js";
import { printableAddress } from "../kernel/server-url.js";
import { SECOND } from "../kernel/time.js";
import { databaseError } from "../platform/db/errors.js";
import { type MigrationSource, pendingMigrations } from "../platform/db/migrate.js";
import { settingsOf } from "../platform/db/postgres.js";
import { type Check, checked, type Finding, fault, ok, warning } from "./doctor.js";

const OLDEST = 15;
/** Two processes of users, two of posts, and one more during a rolling update. */
const PROCESSES = 5;
const NOTIFICATION_MS = 2 * SECOND;
const CHANNEL = "avion_doctor";

export interface DatabaseCheckOptions {
  readonly url: string;
  readonly poolSize: number;
  readonly migrations: readonly MigrationSource[];
}

/** Checks PostgreSQL: reachable, new enough, with our schema, enough connections, and a session for each of them. */
export function databaseChecks(options: DatabaseCheckOptions): Check[] {
  const what = `PostgreSQL ${hostOf(options.url)}`;
  return [
    checked(what, "start PostgreSQL there, or set DATABASE_URL to where it is", () => examinePostgres(what, options)),
  ];
}

/** The folder of a Unix socket is a parameter of the URL. */
function hostOf(url: string): string {
  return new URL(url).searchParams.get("host") ?? printableAddress(url);
}

async function examinePostgres(what: string, options: DatabaseCheckOptions): Promise<readonly Finding[]> {
  const clients = [0, 1].map(() => new pg.Client(settingsOf(options.url, "avion-timeline doctor")));
  const [one, other] = clients as [pg.Client, pg.Client];
  // Queries of a broken connection reject, which is enough.
  for (const client of clients) client.on("error", () => undefined);
  try {
    await Promise.all(clients.map((client) => client.connect()));
    return [
      await versionFinding(what, one),
      await schemaFinding(what, one, options.migrations),
      await connectionFinding(what, one, options.poolSize),
      await preparedFinding(what, one, other),
      await notificationFinding(what, one, other),
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

async function versionFinding(what: string, client: pg.Client): Promise<Finding> {
  const says = `version ${await setting(client, "server_version")}`;
  if (Number(await setting(client, "server_version_num")) >= OLDEST * 10_000) return ok(what, says);
  return fault(what, says, `use PostgreSQL ${OLDEST} or newer`);
}

async function schemaFinding(
  what: string,
  client: pg.Client,
  migrations: readonly MigrationSource[],
): Promise<Finding> {
  const queries = {
    query: async <Row>(sql: string) => (await client.query(sql)).rows as Row[],
    run: async (script: string) => void (await client.query(script)),
  };
  try {
    const pending = await pendingMigrations(queries, migrations);
    if (pending.length === 0) return ok(what, "schema of this version");
    const advice = "the service applies them when it starts";
    return warning(what, `${pending.length} migrations are not applied`, advice);
  } catch (error) {
    const advice = "start the version of the service that made this schema, or a newer one";
    return fault(what, oneLine(error), advice);
  }
}

async function connectionFinding(what: string, client: pg.Client, poolSize: number): Promise<Finding> {
  const limit = Number(await setting(client, "max_connections"));
  const reserved = Number(await setting(client, "superuser_reserved_connections"));
  const processes = Math.floor((limit - reserved) / (poolSize + 1));
  const says = `max_connections ${limit} is enough for ${processes} processes of ${poolSize} + 1 connections`;
  if (processes >= PROCESSES) return ok(what, says);
  return warning(what, says, "raise max_connections, or lower TIMELINE_DATABASE_POOL_SIZE");
}

const SESSIONS = "connect to PostgreSQL itself, or let the pooler keep a session for each connection";

/** While another connection is in a transaction, a pooler in transaction mode gives this one another session. */
async function preparedFinding(what: string, one: pg.Client, other: pg.Client): Promise<Finding> {
  const ask = (value: number) => one.query({ name: "avion_doctor", text: "SELECT $1::int AS value", values: [value] });
  try {
    await ask(1);
    await other.query("BEGIN");
    await other.query("SELECT 1");
    await ask(2);
    await other.query("COMMIT");
    await ask(3);
    return ok(what, "keeps prepared statements");
  } catch (error) {
    return fault(what, `loses prepared statements (${oneLine(error)})`, SESSIONS);
  }
}

async function notificationFinding(what: string, one: pg.Client, other: pg.Client): Promise<Finding> {
  try {
    const heard = new Promise<boolean>((resolveHeard) => {
      one.once("notification", () => resolveHeard(true));
      setTimeout(() => resolveHeard(false), NOTIFICATION_MS).unref();
    });
    await one.query(`LISTEN ${CHANNEL}`);
    await other.query(`NOTIFY ${CHANNEL}`);
    if (await heard) return ok(what, "delivers notifications");
    return fault(what, "does not deliver a NOTIFY to another connection", SESSIONS);
  } catch (error) {
    return fault(what, `LISTEN or NOTIFY failed (${oneLine(error)})`, SESSIONS);
  }
}

/** Checks the folder of the embedded database: writable, and not open in another process. */
export function folderChecks(folder: string): Check[] {
  const what = `embedded database ${folder}`;
  const advice = "name a folder by TIMELINE_DATA_DIR that this user can write, or set DATABASE_URL";
  return [
    checked(what, advice, async () => {
      await access(await nearestFolder(resolve(folder)), constants.W_OK | constants.X_OK);
      if (!(await stat(folder).catch(() => undefined))) return [ok(what, "is made when the service starts")];
      const lock = await tryLockFile(`${folder}.lock`);
      if (lock.taken) {
        await lock.release();
        return [ok(what, "is writable")];
      }
      const says = `is open in process ${lock.holder.pid}`;
      return [warning(what, says, "it is for one process at a time: set DATABASE_URL for more")];
    }),
  ];
}

async function nearestFolder(path: string): Promise<string> {
  for (let folder = path; ; folder = dirname(folder)) {
    if (await stat(folder).catch(() => undefined)) return folder;
  }
}
