import { AppError } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import type { Db, Queries } from "./db.js";
import { type MigrationSource, migrate } from "./migrate.js";

const ROWS_A_STEP = 500;

/** The migrations fill them; those of the source take their place. */
const FILLED_BY_MIGRATIONS = new Set(["users.page_secret", "posts.page_secret", "posts.retention"]);
const MIGRATIONS_TABLE = "public.avion_migrations";

interface Copied {
  readonly tables: number;
  readonly rows: number;
}

interface CopyOptions {
  readonly migrations: readonly MigrationSource[];
  readonly log: Logger;
  readonly progress?: (table: string, rows: number) => void;
}

/** Copies every row into a database that holds none: all of them, or none. @throws AppError `conflict` if it holds some */
export async function copyDatabase(from: Db, to: Db, { migrations, log, progress }: CopyOptions): Promise<Copied> {
  await migrate(from, migrations, log);
  await migrate(to, migrations, log);
  return from.transaction((source) =>
    to.transaction(async (target) => {
      await target.run("SET LOCAL statement_timeout = 0");
      const tables = (await tablesOf(source)).filter((table) => table !== MIGRATIONS_TABLE);
      for (const table of tables) await emptied(target, table);
      for (const partition of await partitionsOf(source)) await target.run(partition);
      let rows = 0;
      for (const table of tables)
        for await (const step of rowsOf(source, table)) {
          await insert(target, table, step);
          rows += step.length;
          progress?.(table, rows);
        }
      for (const { name, value } of await sequencesOf(source))
        await target.query("SELECT setval($1::regclass, $2::bigint)", [name, value]);
      return { tables: tables.length, rows };
    }),
  );
}

const OWN_SCHEMAS = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";

/** A partitioned table stands for its partitions. */
async function tablesOf(queries: Queries): Promise<string[]> {
  const sequences = await queries.query<{ name: string }>(
    `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND ${OWN_SCHEMAS} ORDER BY 1`,
  );
  return sequences.map(({ name }) => name);
}

async function emptied(target: Queries, table: string): Promise<void> {
  if (FILLED_BY_MIGRATIONS.has(table)) return target.run(`DELETE FROM ${table}`);
  const [row] = await target.query<{ filled: boolean }>(`SELECT EXISTS (SELECT FROM ${table}) AS filled`);
  if (row?.filled)
    throw new AppError("conflict", `${table} of the database holds rows already; name an empty database`);
}

/** Partitions of months are created when drops need them, so the target may lack some. */
async function partitionsOf(source: Queries): Promise<string[]> {
  const partitions = await source.query<{ statement: string }>(
    `SELECT format('CREATE TABLE IF NOT EXISTS %I.%I PARTITION OF %s %s%s', n.nspname, c.relname,
       i.inhparent::regclass, pg_get_expr(c.relpartbound, c.oid),
       ' WITH (' || array_to_string(c.reloptions, ', ') || ')') AS statement
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_inherits i ON i.inhrelid = c.oid
     WHERE c.relkind = 'r' AND c.relispartition AND ${OWN_SCHEMAS} ORDER BY c.relname`,
  );
  return partitions.map(({ statement }) => statement);
}

/** Rows are JSON, since a number may be larger than JavaScript reads exactly. */
async function* rowsOf(source: Queries, table: string): AsyncGenerator<readonly string[]> {
  await source.run(`DECLARE copied NO SCROLL CURSOR FOR SELECT row_to_json(t)::text AS row FROM ${table} t`);
  for (;;) {
    const rows = await source.query<{ row: string }>(`FETCH ${ROWS_A_STEP} FROM copied`);
    if (rows.length === 0) break;
    yield rows.map(({ row }) => row);
  }
  await source.run("CLOSE copied");
}

async function insert(target: Queries, table: string, rows: readonly string[]): Promise<void> {
  const filled = `SELECT * FROM json_populate_recordset(NULL::${table}, $1::json)`;
  await target.query(`INSERT INTO ${table} OVERRIDING SYSTEM VALUE ${filled}`, [`[${rows.join(",")}]`]);
}

async function sequencesOf(source: Queries): Promise<readonly { readonly name: string; readonly value: number }[]> {
  return source.query(
    `SELECT format('%I.%I', schemaname, sequencename) AS name, last_value AS value
     FROM pg_sequences WHERE last_value IS NOT NULL`,
  );
}
