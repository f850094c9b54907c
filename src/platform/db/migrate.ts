import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import type { Logger } from "../../kernel/logger.js";
import { releaseAfter, releaseOf, VERSION } from "../../kernel/version.js";
import type { Db, Queries } from "./db.js";

/** The files `NNNN_title.sql` of a folder are applied in their order. */
export interface MigrationSource {
  readonly component: string;
  readonly folder: URL;
}

interface Migration {
  readonly component: string;
  readonly name: string;
  /** The key is `component/file`. */
  readonly key: string;
  readonly script: string;
  readonly checksum: string;
}

export class MigrationRefusal extends Error {}

const FILE = /^\d{4}_[a-z0-9_]+\.sql$/;

/** The key of the advisory lock is the bytes of "avion". */
const LOCK = 0x61_76_69_6f_6e;

/**
 * Applies all in one transaction, by one process at a time. Returns the migrations applied now, as `component/file`.
 * Migrations of the next release may be there already: a release takes away only what the one before it does not use.
 * @throws MigrationRefusal for a migration of the database that is of an unknown or a later release, or has another text
 */
export async function migrate(db: Db, sources: readonly MigrationSource[], log: Logger): Promise<string[]> {
  const migrations = await readSources(sources);
  return db.transaction(async (queries) => {
    await queries.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
    // A role that may create nothing starts if nothing is missing.
    if (!(await hasMigrationsTable(queries))) await queries.query(MIGRATIONS_TABLE);
    const missing = await missingOf(migrations, sources, queries);
    if (missing.length > 0) {
      // The tables of a large installation take longer than any statement of the service.
      await queries.query("SET LOCAL statement_timeout = 0");
      await queries.query("ALTER TABLE public.avion_migrations ADD COLUMN IF NOT EXISTS release text");
    }
    for (const migration of missing) await apply(queries, migration);
    const keys = missing.map(({ key }) => key);
    if (keys.length > 0) log.info({ migrations: keys }, "the database's schema was brought up to date");
    return keys;
  });
}

/** Returns `component/file` of each. @throws MigrationRefusal as {@link migrate} does */
export async function pendingMigrations(queries: Queries, sources: readonly MigrationSource[]): Promise<string[]> {
  const migrations = await readSources(sources);
  return ((await hasMigrationsTable(queries)) ? await missingOf(migrations, sources, queries) : migrations).map(
    ({ key }) => key,
  );
}

async function hasMigrationsTable(queries: Queries): Promise<boolean> {
  const [table] = await queries.query<{ there: boolean }>(
    "SELECT to_regclass('public.avion_migrations') IS NOT NULL AS there",
  );
  return table?.there ?? false;
}

const MIGRATIONS_TABLE = `CREATE TABLE IF NOT EXISTS public.avion_migrations (
  component text NOT NULL,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (component, name)
)`;

/** A table that release 0.1 made does not have the column `release`. */
const APPLIED = `
SELECT component || '/' || name AS key, checksum, to_jsonb(m) ->> 'release' AS release
FROM public.avion_migrations m WHERE component = ANY($1::text[])`;

async function missingOf(
  migrations: readonly Migration[],
  sources: readonly MigrationSource[],
  queries: Queries,
): Promise<Migration[]> {
  const missing = new Map(migrations.map((migration) => [migration.key, migration]));
  const components = sources.map(({ component }) => component);
  const applied = await queries.query<{ key: string; checksum: string; release: string | null }>(APPLIED, [components]);
  for (const { key, checksum, release } of applied) {
    const migration = missing.get(key);
    if (migration === undefined) {
      if (release !== null && mayServe(release)) continue;
      throw new MigrationRefusal(
        `the database holds the migration ${key} of the version ${release ?? "before 0.2"}, and this version is ${VERSION}: ` +
          "a version starts with a database of the next release, and of no later one",
      );
    }
    if (migration.checksum !== checksum)
      throw new MigrationRefusal(
        `the migration ${key} was applied to the database in another form than this version has it`,
      );
    missing.delete(key);
  }
  return [...missing.values()];
}

const mayServe = (release: string): boolean => [releaseOf(VERSION), releaseAfter(VERSION)].includes(releaseOf(release));

async function apply(queries: Queries, { component, name, key, script, checksum }: Migration): Promise<void> {
  try {
    await queries.run(script);
  } catch (error) {
    const { message, code } = error as { message: string; code?: string };
    // The code tells a transaction what to repeat, and the start what to wait for.
    throw Object.assign(new Error(`the migration ${key} failed: ${message}`, { cause: error }), { code });
  }
  const record = "INSERT INTO public.avion_migrations (component, name, checksum, release) VALUES ($1, $2, $3, $4)";
  await queries.query(record, [component, name, checksum, VERSION]);
}

async function readSources(sources: readonly MigrationSource[]): Promise<Migration[]> {
  const read = async ({ component, folder }: MigrationSource, name: string): Promise<Migration> => {
    const script = await readFile(new URL(name, folder), "utf8");
    const checksum = createHash("sha256").update(script).digest("hex");
    return { component, name, key: `${component}/${name}`, script, checksum };
  };
  const perSource = sources.map(async (source) => {
    const names = (await readdir(source.folder)).filter((name) => FILE.test(name)).sort();
    return Promise.all(names.map((name) => read(source, name)));
  });
  return (await Promise.all(perSource)).flat();
}
