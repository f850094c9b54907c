import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { dirname as folderOf, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { silent } from "../../src/kernel/logger.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { temporaryFolder } from "../support/brokers.js";
import { type Postgres, postgresPrograms, startPostgres, unprivileged } from "../support/postgres.js";

const SCRIPT = readFileSync("charts/avion-timeline/files/check-backup.sh", "utf8");
const programs = postgresPrograms();
const HOUR_S = 3_600;

(programs === undefined ? describe.skip : describe)("the backup check of the chart", () => {
  let server: Postgres;
  let folder: string;
  let checks = 0;

  beforeAll(async () => {
    server = await startPostgres();
    folder = await temporaryFolder("backups");
    chmodSync(folder, 0o755);
    const db = openPostgres({ url: server.url, poolSize: 1, name: "test" }, silent);
    await migrate(db, MIGRATIONS, silent);
    await db.close();
  }, 60_000);

  afterAll(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** A folder with one backup of a database; `-Fc` is `--format=custom`. */
  function backup(name: string, { url = server.url, format = "-Fc" } = {}): string {
    const backups = join(folder, name);
    mkdirSync(backups);
    const file = join(backups, "timeline.dump");
    execFileSync(join(programs as string, "pg_dump"), [format, "-f", file, url]);
    return file;
  }

  /** Runs as in its pod: with programs of PostgreSQL, without root, in an empty folder. */
  function check(backups: string, maxAgeHours = 26) {
    const work = join(folder, `work-${++checks}`);
    mkdirSync(work);
    const user = unprivileged();
    if (user.uid !== undefined) chownSync(work, user.uid, user.gid as number);
    const env = { PATH: `${programs}:/usr/bin:/bin`, BACKUPS: backups, WORK: work, MAX_AGE_HOURS: String(maxAgeHours) };
    const { status, stdout, stderr } = spawnSync("bash", ["-c", SCRIPT], { ...user, env, cwd: work, encoding: "utf8" });
    expect(existsSync(join(work, "data/postmaster.pid"))).toBe(false);
    return { status, stdout, stderr };
  }

  test("a backup of the service's database is restored, and nothing stays behind", async () => {
    const client = new pg.Client(server.url);
    await client.connect();
    await client.query(
      "INSERT INTO users.followings SELECT 'ada', 'user-' || i, 1, true, 1 FROM generate_series(1, 3) i",
    );
    await client.end();
    const { status, stdout, stderr } = check(folderOf(backup("good")));
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/\nusers\.followings: 3 rows\nposts\.drops: 0 rows\nit can be restored\n$/);
  });

  test("the newest file counts, and it must not be too old", () => {
    const file = backup("old");
    const twoHoursAgo = Date.now() / 1000 - 2 * HOUR_S;
    utimesSync(file, twoHoursAgo, twoHoursAgo);
    expect(check(folderOf(file), 3).status).toBe(0);
    expect(check(folderOf(file), 1)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining("older than 1 hours"),
    });
    writeFileSync(join(folderOf(file), "newer.dump"), "no backup");
    expect(check(folderOf(file), 3)).toMatchObject({ status: 1, stdout: expect.stringContaining("newer.dump") });
  });

  test("no backup, a torn one, one of another form and one of another database fail", async () => {
    const empty = join(folder, "empty");
    mkdirSync(empty);
    expect(check(empty)).toMatchObject({ status: 1, stderr: expect.stringContaining("there is no file in") });
    const torn = backup("torn");
    truncateSync(torn, Math.floor(statSync(torn).size / 2));
    expect(check(folderOf(torn))).toMatchObject({ status: 1, stderr: expect.stringContaining("pg_restore") });
    const text = backup("text", { format: "-Fp" });
    expect(check(folderOf(text))).toMatchObject({ status: 1, stderr: expect.stringContaining("pg_restore") });
    const client = new pg.Client(server.url);
    await client.connect();
    await client.query("CREATE DATABASE other TEMPLATE template1");
    await client.end();
    const other = backup("other", { url: server.url.replace(/postgres$/, "other") });
    expect(check(folderOf(other))).toMatchObject({ status: 1, stderr: "it is no backup of this service\n" });
  });
});
