import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { openPglite } from "../../src/platform/db/pglite.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { postgresPrograms, startPostgres } from "./postgres.js";

/** A database server of a test file's own. */
export type DatabaseServer = {
  /** Makes an empty database and connects to it. */
  newDatabase(): Promise<Db>;
  stop(): Promise<void>;
};

/** The databases every store is tested against, those that are there. */
export const DATABASES: readonly { readonly name: string; start(): Promise<DatabaseServer> }[] = [
  { name: "PGlite", start: startEmbedded },
  ...(postgresPrograms() === undefined ? [] : [{ name: "PostgreSQL", start: startServer }]),
];

async function startEmbedded(): Promise<DatabaseServer> {
  const dump = await emptyDump();
  const opened: Db[] = [];
  return {
    newDatabase: async () => {
      const db = await openPglite({ dump });
      opened.push(db);
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
  return {
    newDatabase: async () => {
      made += 1;
      await admin.run(`CREATE DATABASE t${made}`);
      const db = openPostgres(
        { url: server.url.replace(/\/postgres$/, `/t${made}`), poolSize: 10, name: "test" },
        silent,
      );
      opened.push(db);
      return db;
    },
    stop: async () => {
      await Promise.all(opened.map((db) => db.close()));
      await server.stop();
    },
  };
}

/** Makes a data folder of an embedded database, as its first start does in many seconds. */
export async function makeDataFolder(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true });
  execFileSync("tar", ["-xzPf", await emptyDumpFile(), "-C", folder, "--transform", "s,^/,,"]);
}

async function emptyDump(): Promise<Blob> {
  return new Blob([readFileSync(await emptyDumpFile())]);
}

/** Making an empty database takes PGlite seconds, loading one a second: it is made once a version and machine. */
async function emptyDumpFile(): Promise<string> {
  const manifest = createRequire(import.meta.url).resolve("@electric-sql/pglite");
  const version = createHash("sha256").update(readFileSync(manifest)).digest("hex").slice(0, 16);
  const file = join(tmpdir(), `timeline-test-pglite-${version}.tar.gz`);
  if (!existsSync(file)) {
    const lite = await PGlite.create();
    const dump = await lite.dumpDataDir("gzip");
    await lite.close();
    const draft = `${file}.${randomBytes(6).toString("hex")}`;
    writeFileSync(draft, Buffer.from(await dump.arrayBuffer()));
    renameSync(draft, file);
  }
  return file;
}
