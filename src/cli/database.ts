import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { silent } from "../kernel/logger.js";
import { VERSION } from "../kernel/version.js";
import { copyDatabase } from "../platform/db/copy.js";
import { openPglite } from "../platform/db/pglite.js";
import { openPostgres } from "../platform/db/postgres.js";
import { dataFolder, MIGRATIONS } from "../roles/database.js";
import { type Opening, runJob } from "./bootstrap.js";
import { exitWith, JSON_OPTION } from "./options.js";

export function define(database: Command): void {
  database
    .command("copy")
    .description("copy the embedded database in TIMELINE_DATA_DIR into the empty PostgreSQL database at DATABASE_URL")
    .addOption(JSON_OPTION)
    .action(exitWith(copy));
}

/** The service must have ended: nobody else can open the folder. */
function copy({ json }: { readonly json?: boolean }): Promise<number> {
  return runJob({ name: "database", open: openBoth, json }, async ({ connections: { from, to }, say }) => {
    const progress = (table: string, rows: number): void => say(() => `${rows} rows, now of ${table}`);
    const copied = await copyDatabase(from, to, { migrations: MIGRATIONS, log: silent, progress });
    return { json: copied, text: `${copied.rows} rows of ${copied.tables} tables copied` };
  });
}

async function openBoth({ config: { database }, closers }: Opening) {
  const { url, poolSize } = database;
  if (url === undefined) throw new Error("set DATABASE_URL: the database is copied there");
  const folder = dataFolder(database);
  if (!existsSync(join(folder, "PG_VERSION")))
    throw new Error(`there is no embedded database in ${folder}; set TIMELINE_DATA_DIR`);
  const from = await openPglite({ folder });
  closers.add("embedded database", () => from.close());
  const to = openPostgres({ url, poolSize, name: `avion-timeline/${VERSION} copy` }, silent);
  closers.add("database", () => to.close());
  return { from, to };
}
