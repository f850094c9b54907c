import { join } from "node:path";
import { ANALYSIS_MIGRATIONS } from "../analysis/index.js";
import { codeOf } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { createPageTokens, type PageTokens } from "../kernel/paging.js";
import { VERSION } from "../kernel/version.js";
import { NOTIFICATIONS_MIGRATIONS } from "../notifications/index.js";
import { OUTBOX_MIGRATIONS, type Outbox, type OutboxOptions, startOutbox } from "../outbox/index.js";
import { type Db, readPageSecret } from "../platform/db/db.js";
import { migrate } from "../platform/db/migrate.js";
import { POSTS_MIGRATIONS } from "../posts/index.js";
import { REWARDS_MIGRATIONS } from "../rewards/index.js";
import { USERS_MIGRATIONS } from "../users/index.js";
import type { Closers } from "./closers.js";
import type { Config } from "./config/config.js";
import type { DatabaseConfig } from "./config/connections.js";
import type { Role } from "./config/process.js";
import { retryUntilDone } from "./connections.js";
import type { StoringRoleDeps } from "./role.js";

export const MIGRATIONS = [
  OUTBOX_MIGRATIONS,
  USERS_MIGRATIONS,
  POSTS_MIGRATIONS,
  ANALYSIS_MIGRATIONS,
  REWARDS_MIGRATIONS,
  NOTIFICATIONS_MIGRATIONS,
];

/**
 * Opens the database of roles that keep data, waits for its server and applies the migrations. For reads by the role
 * gateway nothing is waited for. Undefined if no role needs it, or a gateway has no address of a server.
 *
 * @throws an error if the schema is of another version
 */
export async function openDatabase(
  { process: { roles }, database }: Config,
  log: Logger,
  closers: Closers,
): Promise<Db | undefined> {
  const reads = roles.includes("gateway") && database.url !== undefined;
  if (!keepsData(roles) && !reads) return undefined;
  const db = await connect(database, log);
  closers.add("database", () => db.close());
  if (keepsData(roles))
    await retryUntilDone(
      () => migrate(db, MIGRATIONS, log),
      log,
      "the database is not available yet; the start waits",
      isAway,
    );
  return db;
}

/** Makes the page tokens of a service, once its database can be read. */
export async function openPageTokens(db: Db, schema: "users" | "posts", log: Logger): Promise<PageTokens> {
  const read = () => readPageSecret(db, schema);
  return createPageTokens(await retryUntilDone(read, log, "the secret of page tokens cannot be read yet", isAway));
}

const isAway = (error: unknown): boolean => codeOf(error) === "unavailable";

const STORING: readonly Role[] = ["users", "posts", "analysis", "rewards", "notifications"];

export const keepsData = (roles: readonly Role[]): boolean => roles.some((role) => STORING.includes(role));

export const dataFolder = ({ dataDir }: DatabaseConfig): string => join(dataDir, "pglite");

/** A driver is loaded by the processes that use it. */
async function connect(config: DatabaseConfig, log: Logger): Promise<Db> {
  const { url, dataDir, poolSize } = config;
  if (url !== undefined) {
    const { openPostgres } = await import("../platform/db/postgres.js");
    return openPostgres({ url, poolSize, name: `avion-timeline/${VERSION}` }, log);
  }
  log.info(
    { folder: dataDir },
    "DATABASE_URL is not set: embedded PostgreSQL, without fsync and for this process alone",
  );
  const { openPglite } = await import("../platform/db/pglite.js");
  return openPglite({ folder: dataFolder(config) });
}

/** Starts the outbox of a service on the connections of this process. */
export const startOutboxOf = (
  { config, connections: { publish, storeDeadLetter, redis }, db, log }: StoringRoleDeps,
  service: Pick<OutboxOptions, "source" | "prepare" | "countEveryMs">,
): Promise<Outbox> =>
  startOutbox({
    ...service,
    db,
    publish,
    storeDeadLetter,
    channels: config.outbox.relayChannels ? { redis, prefix: config.redis.channelPrefix } : undefined,
    version: VERSION,
    log,
  });
