import { setFlagsFromString } from "node:v8";
import type { PGlite } from "@electric-sql/pglite";
import { test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { createPglite, openOn } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { postgresPrograms, startPostgres } from "./postgres.js";
import { runs } from "./suite.js";

// Node 26 takes this flag from its command line only, as `npm run jest` gives it.
setFlagsFromString("--liftoff-only");

/** A database server of a test file's own. */
export type DatabaseServer = {
  /** Makes an empty database and connects to it. */
  newDatabase(): Promise<Db>;
  /** An empty database for a test that takes the place of the last one: nobody uses that one any more. */
  emptyDatabase(): Promise<Db>;
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

declare global {
  /** Databases of the Jest worker that no file uses: starting one takes a second of CPU time. */
  var idleDatabases: PGlite[];
}

const idle = globalThis.idleDatabases;
const IDLE_MAX = 2;

/** Leaves nothing of what a test did in it; where that fails, nobody gets it. */
async function giveBack(lite: PGlite): Promise<void> {
  if (lite.closed) return;
  try {
    await lite.exec("ROLLBACK");
    const { rows } = await lite.query<{ name: string }>("SELECT pg_listening_channels() AS name");
    for (const { name } of rows) await lite.unlisten(name);
    for (const statement of ["DISCARD ALL", DROP_ALL]) await lite.exec(statement);
    if (idle.length < IDLE_MAX) idle.push(lite);
    else await lite.close();
  } catch {
    await lite.close();
  }
}

async function startEmbedded(): Promise<DatabaseServer> {
  const opened: Db[] = [];
  const newDatabase = async (): Promise<Db> => {
    const lite = idle.pop() ?? (await createPglite());
    let given: Promise<void> | undefined;
    const db = await openOn(lite, () => (given ??= giveBack(lite)));
    opened.push(db);
    return db;
  };
  let emptied: Db | undefined;
  return {
    newDatabase,
    emptyDatabase: async () => {
      await emptied?.close();
      emptied = await newDatabase();
      return emptied;
    },
    stop: async () => void (await Promise.all(opened.map((db) => db.close()))),
  };
}

async function startServer(): Promise<DatabaseServer> {
  const server = await startPostgres();
  const admin = openPostgres({ url: server.url, poolSize: 1, name: "test" }, silent);
  const opened: Db[] = [admin];
  let made = 0;
  const newDatabase = async (): Promise<Db> => {
    made += 1;
    await admin.run(`CREATE DATABASE t${made}`);
    const db = openPostgres(
      { url: server.url.replace(/\/postgres$/, `/t${made}`), poolSize: 10, name: "test" },
      silent,
    );
    opened.push(db);
    return db;
  };
  return {
    newDatabase,
    emptyDatabase: newDatabase,
    stop: async () => {
      await Promise.all(opened.map((db) => db.close()));
      await server.stop();
    },
  };
}
