import { setFlagsFromString } from "node:v8";
import type { PGlite } from "@electric-sql/pglite";
import { test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { type MigrationSource, migrate } from "../../src/platform/db/migrate.js";
import { createPglite, openOn } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { postgresPrograms, startPostgres } from "./postgres.js";
import { isEmptied, type Schema, schemaOf } from "./schema.js";
import { runs } from "./suite.js";

// Node 26 takes this flag from its command line only, as `npm run jest` gives it.
setFlagsFromString("--liftoff-only");

/** A database server of a test file's own. */
export type DatabaseServer = {
  /** Makes an empty database and connects to it. */
  newDatabase(): Promise<Db>;
  /**
   * An empty database for a test that takes the place of the last one: nobody uses that one any more. With `sources` it
   * has their tables, which are made once a file.
   */
  emptyDatabase(sources?: readonly MigrationSource[]): Promise<Db>;
  stop(): Promise<void>;
};

/** The databases every store is tested against, those that are there. */
export const DATABASES: readonly { readonly name: string; start(): Promise<DatabaseServer> }[] = [
  { name: "PGlite", start: startEmbedded },
  ...(postgresPrograms() === undefined ? [] : [{ name: "PostgreSQL", start: startServer }]),
];

const DROP_ALL = `DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
END $$`;

/** Declares the long tests of a store: `npm test` runs them on one database, `npm run test:all` on the others. */
export const longTest = (database: string): (typeof test)["skip"] =>
  runs[database === DATABASES.at(-1)?.name ? "quick" : "slow"] ? test : test.skip;

/** Declares a test whose processes share a server of the database: without PostgreSQL it is skipped. */
export const testOnPostgres: (name: string, work: () => Promise<void>) => void =
  postgresPrograms() === undefined ? (name) => test.skip(`${name}: no PostgreSQL is installed`, () => undefined) : test;

declare global {
  /** Databases of the Jest worker that no file uses: starting one takes a second of CPU time. */
  var idleDatabases: PGlite[];
}

const idle = globalThis.idleDatabases;
const IDLE_MAX = 2;

/** A database, and how to connect to it again. */
type Place = { open(): Promise<Db>; end(): Promise<void> };

/** Leaves nothing of a session. */
async function tidy(lite: PGlite): Promise<void> {
  await lite.exec("ROLLBACK");
  const { rows } = await lite.query<{ name: string }>("SELECT pg_listening_channels() AS name");
  for (const { name } of rows) await lite.unlisten(name);
  await lite.exec("DISCARD ALL");
}

/** Leaves nothing of what a test did in it; where that fails, nobody gets it. */
async function giveBack(lite: PGlite): Promise<void> {
  if (lite.closed) return;
  try {
    await tidy(lite);
    await lite.exec(DROP_ALL);
    if (idle.length < IDLE_MAX) idle.push(lite);
    else await lite.close();
  } catch {
    await lite.close();
  }
}

/** Empties one database again and again. A schema that a test has changed is made anew, in another database. */
function emptying(newPlace: () => Promise<Place>): Pick<DatabaseServer, "emptyDatabase"> & Pick<Place, "end"> {
  let place: Place | undefined;
  let tables: { readonly of: string; readonly schema: Schema } | undefined;
  let db: Db | undefined;
  const end = async (): Promise<void> => {
    await db?.close();
    await place?.end();
    [db, place, tables] = [undefined, undefined, undefined];
  };
  const emptyDatabase = async (sources: readonly MigrationSource[] = []): Promise<Db> => {
    const components = sources.map(({ component }) => component).join();
    if (place && tables?.of === components) {
      await db?.close();
      db = await place.open();
      if (await isEmptied(db, tables.schema)) return db;
    }
    await end();
    place = await newPlace();
    db = await place.open();
    if (sources.length > 0) {
      await migrate(db, sources, silent);
      tables = { of: components, schema: await schemaOf(db) };
    }
    return db;
  };
  return { emptyDatabase, end };
}

async function startEmbedded(): Promise<DatabaseServer> {
  const opened: Db[] = [];
  const take = async (): Promise<PGlite> => idle.pop() ?? createPglite();
  const newDatabase = async (): Promise<Db> => {
    const lite = await take();
    let given: Promise<void> | undefined;
    const db = await openOn(lite, () => (given ??= giveBack(lite)));
    opened.push(db);
    return db;
  };
  const { emptyDatabase, end } = emptying(async () => {
    const lite = await take();
    return {
      open: () => openOn(lite, () => (lite.closed ? Promise.resolve() : tidy(lite))),
      end: () => giveBack(lite),
    };
  });
  return {
    newDatabase,
    emptyDatabase,
    stop: async () => void (await Promise.all([...opened.map((db) => db.close()), end()])),
  };
}

async function startServer(): Promise<DatabaseServer> {
  const server = await startPostgres();
  const admin = openPostgres({ url: server.url, poolSize: 1, name: "test" }, silent);
  let made = 0;
  const opened: Db[] = [admin];
  const newPlace = async (): Promise<Place> => {
    const name = `t${++made}`;
    await admin.run(`CREATE DATABASE ${name}`);
    const url = server.url.replace(/\/postgres$/, `/${name}`);
    return {
      open: async () => openPostgres({ url, poolSize: 10, name: "test" }, silent),
      end: async () => undefined,
    };
  };
  const { emptyDatabase, end } = emptying(newPlace);
  return {
    newDatabase: async () => {
      const db = await (await newPlace()).open();
      opened.push(db);
      return db;
    },
    emptyDatabase,
    stop: async () => {
      await end();
      await Promise.all(opened.map((db) => db.close()));
      await server.stop();
    },
  };
}
