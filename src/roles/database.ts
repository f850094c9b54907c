import { join } from "node:path";
import { codeOf } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { OUTBOX_MIGRATIONS } from "../outbox/store.sql.js";
import type { Db } from "../platform/db/db.js";
import { migrate } from "../platform/db/migrate.js";
import { openPglite } from "../platform/db/pglite.js";
import { openPostgres } from "../platform/db/postgres.js";
import { POSTS_MIGRATIONS } from "../posts/store.sql.js";
import { USERS_MIGRATIONS } from "../users/follows.sql.js";
import type { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import { persist } from "./persist.js";
import { VERSION } from "./version.js";

/** Everything the database of this version holds. */
export const MIGRATIONS = [OUTBOX_MIGRATIONS, USERS_MIGRATIONS, POSTS_MIGRATIONS];

/**
 * Opens the database and brings its schema up to date, waiting for a server that is not there yet.
 *
 * @throws where the schema is another version's, or the folder is open in another process
 */
export async function openDatabase(config: Config, log: Logger, closers: Closers): Promise<Db> {
  const db = await connect(config, log);
  closers.add("database", () => db.close());
  const bring = async (): Promise<void> => void (await migrate(db, MIGRATIONS, log));
  await persist(bring, log, "the database is not there yet", (error) => codeOf(error) === "unavailable");
  return db;
}

/** True where a role of this process keeps data of its own. */
export const keepsData = ({ TIMELINE_ROLES: roles }: Config): boolean =>
  roles.includes("users") || roles.includes("posts");

/** Where the embedded database keeps its files. */
export const dataFolder = ({ TIMELINE_DATA_DIR: dir }: Config): string => join(dir, "pglite");

async function connect(config: Config, log: Logger): Promise<Db> {
  const { DATABASE_URL: url, TIMELINE_DATA_DIR: dir, TIMELINE_DATABASE_POOL_SIZE: poolSize } = config;
  if (url !== undefined) return openPostgres({ url, poolSize, name: `avion-timeline/${VERSION}` }, log);
  log.info({ folder: dir }, "DATABASE_URL is not set: embedded PostgreSQL, without fsync and for this process alone");
  return openPglite({ folder: dataFolder(config) });
}
