import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { MigrationRefusal, type MigrationSource, migrate } from "../../src/platform/db/migrate.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";

describe.each(DATABASES)("migrations on $name", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;
  let folder: string;
  let source: MigrationSource;

  beforeAll(async () => {
    server = await start();
  });
  beforeEach(async () => {
    db = await server.emptyDatabase();
    folder = mkdtempSync(join(tmpdir(), "timeline-test-migrations-"));
    source = { component: "shop", folder: pathToFileURL(`${folder}/`) };
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  afterAll(() => server.stop());

  const write = (name: string, script: string): void => writeFileSync(join(folder, name), script);

  test("what an older version stored is kept and carried over", async () => {
    write("0001_items.sql", "CREATE TABLE item (id int PRIMARY KEY, price text)");
    expect(await migrate(db, [source], silent)).toEqual(["shop/0001_items.sql"]);
    await db.query("INSERT INTO item VALUES (1, '12')");
    write(
      "0002_cents.sql",
      "ALTER TABLE item ADD cents int; UPDATE item SET cents = price::int * 100; ALTER TABLE item DROP price",
    );
    write("0003_index.sql", "CREATE INDEX ON item (cents)");
    expect(await migrate(db, [source], silent)).toEqual(["shop/0002_cents.sql", "shop/0003_index.sql"]);
    expect(await db.query("SELECT * FROM item")).toEqual([{ id: 1, cents: 1200 }]);
    expect(await migrate(db, [source], silent)).toEqual([]);
  });

  test("a migration may take longer than other statements", async () => {
    write("0001_long.sql", "CREATE TABLE limits AS SELECT current_setting('statement_timeout') AS longest");
    await migrate(db, [source], silent);
    expect(await db.query("SELECT * FROM limits")).toEqual([{ longest: "0" }]);
  });

  test("a migration that fails leaves nothing of those before it", async () => {
    write("0001_good.sql", "CREATE TABLE good (id int)");
    write("0002_bad.sql", "CREATE TABLE bad (id int); SELECT nonsense");
    await expect(migrate(db, [source], silent)).rejects.toThrow("shop/0002_bad.sql");
    write("0002_bad.sql", "CREATE TABLE bad (id int)");
    expect(await migrate(db, [source], silent)).toHaveLength(2);
  });

  test("a migration that loses against another transaction runs again", async () => {
    // A rollback takes no number back.
    await db.run("CREATE SEQUENCE tries");
    write(
      "0001_once.sql",
      `CREATE TABLE item (id int); DO $$ BEGIN
        IF nextval('tries') = 1 THEN RAISE 'deadlock detected' USING ERRCODE = '40P01'; END IF;
      END $$`,
    );
    expect(await migrate(db, [source], silent)).toEqual(["shop/0001_once.sql"]);
  });

  test("a migration during which the server shuts down is an outage: the start waits", async () => {
    write(
      "0001_away.sql",
      "DO $$ BEGIN RAISE 'terminating connection due to administrator command' USING ERRCODE = '57P01'; END $$",
    );
    const migrated = migrate(db, [source], silent);
    await expect(migrated).rejects.toMatchObject({ code: "unavailable" });
    await expect(migrated).rejects.toThrow("shop/0001_away.sql");
  });

  test("a migration that was changed after it was applied, or that only a newer version has, is refused", async () => {
    write("0001_items.sql", "CREATE TABLE item (id int)");
    await migrate(db, [source], silent);
    write("0001_items.sql", "CREATE TABLE item (id bigint)");
    await expect(migrate(db, [source], silent)).rejects.toThrow(MigrationRefusal);
    rmSync(join(folder, "0001_items.sql"));
    await expect(migrate(db, [source], silent)).rejects.toThrow("newer");
  });

  test("several processes that start at once apply each once", async () => {
    write("0001_items.sql", "CREATE TABLE item (id int)");
    write("0002_row.sql", "INSERT INTO item VALUES (1)");
    const applied = await Promise.all(Array.from({ length: 4 }, () => migrate(db, [source], silent)));
    expect(applied.map((names) => names.length).sort((a, b) => a - b)).toEqual([0, 0, 0, 2]);
    expect(await db.query("SELECT * FROM item")).toHaveLength(1);
  });

  test("this version's own can be applied, and again", async () => {
    expect((await migrate(db, MIGRATIONS, silent)).length).toBeGreaterThan(0);
    expect(await migrate(db, MIGRATIONS, silent)).toEqual([]);
  });
});
