import { cp, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { temporaryFolder } from "./brokers.js";

/** The number of the last migration that a version has of each component. */
export type Newest = Readonly<Record<string, number>>;

/** Brings an empty database to the schema of an older version. Migrations never change, so today's files make it. */
export const migrateTo = (db: Db, newest: Newest): Promise<void> => migrateWith(db, { newest });

/** A migration that only a test has, such as `{ users: "ALTER TABLE …" }`, follows all others of its component. */
export const migrateBeyond = (db: Db, scripts: Readonly<Record<string, string>>): Promise<void> =>
  migrateWith(db, { scripts });

async function migrateWith(
  db: Db,
  { newest, scripts = {} }: { readonly newest?: Newest; readonly scripts?: Readonly<Record<string, string>> },
): Promise<void> {
  const root = await temporaryFolder("schema");
  try {
    const sources = MIGRATIONS.map(async ({ component, folder }) => {
      const copies = join(root, component);
      await mkdir(copies);
      for (const name of await readdir(folder))
        if (!newest || Number(name.slice(0, 4)) <= (newest[component] ?? 0))
          await cp(join(fileURLToPath(folder), name), join(copies, name));
      const script = scripts[component];
      if (script !== undefined) await writeFile(join(copies, "9999_of_a_test.sql"), script);
      return { component, folder: pathToFileURL(`${copies}/`) };
    });
    await migrate(db, await Promise.all(sources), silent);
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

const TABLES = `
SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`;

/** Returns the tables that have no row. */
export async function emptyTables(db: Db): Promise<string[]> {
  const empty: string[] = [];
  for (const { name } of await db.query<{ name: string }>(TABLES))
    if ((await db.query(`SELECT FROM ${name} LIMIT 1`)).length === 0) empty.push(name);
  return empty;
}

/** Inserts rows; columns that they do not name get their defaults. */
export async function insert(db: Db, table: string, rows: readonly object[]): Promise<void> {
  for (const row of rows) {
    const columns = Object.keys(row).join(", ");
    await db.query(
      `INSERT INTO ${table} (${columns}) SELECT ${columns} FROM json_populate_record(NULL::${table}, $1::json)`,
      [JSON.stringify(row)],
    );
  }
}
