import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { VERSION } from "../../src/kernel/version.js";
import type { Db } from "../../src/platform/db/db.js";
import { MigrationRefusal, type MigrationSource, migrate, pendingMigrations } from "../../src/platform/db/migrate.js";
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

  test("a migration that was changed after it was applied is refused", async () => {
    write("0001_items.sql", "CREATE TABLE item (id int)");
    await migrate(db, [source], silent);
    write("0001_items.sql", "CREATE TABLE item (id bigint)");
    await expect(migrate(db, [source], silent)).rejects.toThrow(MigrationRefusal);
  });

  test("a version works with a database of its own release and of the next, and refuses one of a later release", async () => {
    const [major, minor] = VERSION.split(".").map(Number) as [number, number];
    write("0001_items.sql", "CREATE TABLE item (id int)");
    write("0002_of_a_later_version.sql", "ALTER TABLE item ADD price int");
    await migrate(db, [source], silent);
    rmSync(join(folder, "0002_of_a_later_version.sql"));
    const release = (release: string | null) =>
      db.query("UPDATE public.avion_migrations SET release = $1 WHERE name = '0002_of_a_later_version.sql'", [release]);
    for (const served of [`${major}.${minor}.9`, `${major}.${minor + 1}.0`, `${major}.${minor + 1}.3`]) {
      await release(served);
      expect(await migrate(db, [source], silent)).toEqual([]);
      expect(await pendingMigrations(db, [source])).toEqual([]);
    }
    for (const later of [`${major}.${minor + 2}.0`, `${major + 1}.${minor}.0`, null]) {
      await release(later);
      await expect(migrate(db, [source], silent)).rejects.toThrow(MigrationRefusal);
      await expect(pendingMigrations(db, [source])).rejects.toThrow(later ?? "before 0.2");
    }
  });

  test("a table of migrations of version 0.1.0 is read, and gets the release of each migration applied now", async () => {
    write("0001_items.sql", "CREATE TABLE item (id int)");
    await migrate(db, [source], silent);
    await db.query("ALTER TABLE public.avion_migrations DROP COLUMN release");
    expect(await pendingMigrations(db, [source])).toEqual([]);
    write("0002_price.sql", "ALTER TABLE item ADD price int");
    expect(await migrate(db, [source], silent)).toEqual(["shop/0002_price.sql"]);
    expect(await db.query("SELECT name, release FROM public.avion_migrations ORDER BY name")).toEqual([
      { name: "0001_items.sql", release: null },
      { name: "0002_price.sql", release: VERSION },
    ]);
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
