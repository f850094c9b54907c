import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import type { Logger } from "../../kernel/logger.js";
import type { Db, Queries } from "./db.js";

/** A folder of `NNNN_title.sql`, applied in their order. */
export interface MigrationSource {
  readonly component: string;
  readonly folder: URL;
}

interface Migration {
  readonly component: string;
  readonly name: string;
  readonly script: string;
  readonly checksum: string;
}

export class MigrationRefusal extends Error {}

const FILE = /^\d{4}_[a-z0-9_]+\.sql$/;

/** Key of an advisory lock: the bytes of "avion". */
const LOCK = 0x61_76_69_6f_6e;

/**
 * One transaction, by one process at a time. Returns the migrations applied now, as `component/file`.
 * @throws MigrationRefusal for a migration of the database that this version lacks, or has with another text
 */
export async function migrate(db: Db, sources: readonly MigrationSource[], log: Logger): Promise<string[]> {
  const wanted = (await Promise.all(sources.map(readSource))).flat();
  return db.transaction(async (queries) => {
    await queries.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
    await queries.run(MIGRATIONS_TABLE);
    const applied = await readApplied(queries);
    refuseForeign(wanted, applied, sources);
    const missing = wanted.filter((migration) => !applied.has(keyOf(migration)));
    for (const migration of missing) await apply(queries, migration);
    if (missing.length > 0)
      log.info({ migrations: missing.map(keyOf) }, "the database's schema was brought up to date");
    return missing.map(keyOf);
  });
}

/** As `component/file`. @throws MigrationRefusal as {@link migrate} does */
export async function pendingMigrations(queries: Queries, sources: readonly MigrationSource[]): Promise<string[]> {
  const wanted = (await Promise.all(sources.map(readSource))).flat();
  const [table] = await queries.query<{ there: boolean }>(
    "SELECT to_regclass('public.avion_migrations') IS NOT NULL AS there",
  );
  const applied = table?.there ? await readApplied(queries) : new Map<string, string>();
  refuseForeign(wanted, applied, sources);
  return wanted.map(keyOf).filter((key) => !applied.has(key));
}

const MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS public.avion_migrations (
  component text NOT NULL,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (component, name)
)`;

async function readApplied(queries: Queries): Promise<Map<string, string>> {
  const rows = await queries.query<{ component: string; name: string; checksum: string }>(
    "SELECT component, name, checksum FROM public.avion_migrations",
  );
  return new Map(rows.map((row) => [keyOf(row), row.checksum]));
}

function refuseForeign(
  wanted: readonly Migration[],
  applied: ReadonlyMap<string, string>,
  sources: readonly MigrationSource[],
): void {
  const own = new Map(wanted.map((migration) => [keyOf(migration), migration.checksum]));
  const components = new Set(sources.map(({ component }) => component));
  for (const [key, checksum] of applied) {
    if (!components.has(key.slice(0, key.indexOf("/")))) continue;
    if (!own.has(key))
      throw new MigrationRefusal(
        `the database holds the migration ${key}, which this version does not have: it is newer`,
      );
    if (own.get(key) !== checksum)
      throw new MigrationRefusal(
        `the migration ${key} was applied to the database in another form than this version has it`,
      );
  }
}

async function apply(queries: Queries, { component, name, script, checksum }: Migration): Promise<void> {
  try {
    await queries.run(script);
  } catch (error) {
    throw new Error(`the migration ${component}/${name} failed: ${(error as Error).message}`, { cause: error });
  }
  await queries.query("INSERT INTO public.avion_migrations (component, name, checksum) VALUES ($1, $2, $3)", [
    component,
    name,
    checksum,
  ]);
}

async function readSource({ component, folder }: MigrationSource): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => FILE.test(name)).sort();
  return Promise.all(
    names.map(async (name) => {
      const script = await readFile(new URL(name, folder), "utf8");
      return { component, name, script, checksum: createHash("sha256").update(script).digest("hex") };
    }),
  );
}

const keyOf = ({ component, name }: { component: string; name: string }): string => `${component}/${name}`;
