import { setFlagsFromString } from "node:v8";
import { test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { openPglite } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { postgresPrograms, startPostgres } from "./postgres.js";
import { runs } from "./suite.js";

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

/** Starting an embedded database takes ten times as long as emptying one. */
const DROP_ALL = `DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', name);
  END LOOP;
  CREATE SCHEMA public;
END $$`;

/** Declares the long tests of a store: `npm test` runs them on one database, `npm run test:all` on the others. */
export const longTest = (database: string): (typeof test)["skip"] =>
  runs[database === DATABASES.at(-1)?.name ? "quick" : "slow"] ? test : test.skip;

async function startEmbedded(): Promise<DatabaseServer> {
  const opened: Db[] = [];
  let reused: Promise<Db> | undefined;
  const newDatabase = async (): Promise<Db> => {
    const db = await openPglite({});
    opened.push(db);
    return db;
  };
  return {
    newDatabase,
    emptyDatabase: async () => {
      const first = reused === undefined;
      reused ??= newDatabase();
      const db = await reused;
      if (!first) await db.run(DROP_ALL);
      if (!first) await db.run("DISCARD TEMP");
      return db;
    },
    stop: async () => {
      await Promise.all(opened.map((db) => db.close()));
    },
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
