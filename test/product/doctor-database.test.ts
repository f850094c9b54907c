import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { temporaryFolder } from "../support/brokers.js";
import { hasPgbouncer, startPgbouncer } from "../support/pgbouncer.js";
import { addGuardedRole, type Postgres, postgresPrograms, startPostgres } from "../support/postgres.js";
import { runMain } from "../support/service.js";

type Finding = { readonly what: string; readonly state: string; readonly says: string; readonly advice?: string };

const NOWHERE = { REDIS_URL: "redis://127.0.0.1:1", NATS_URL: "nats://127.0.0.1:1" };

/** The lines of doctor about the database. */
async function findingsOf(env: Readonly<Record<string, string>>): Promise<Finding[]> {
  const run = runMain(["doctor", "--json"], { ...NOWHERE, TIMELINE_ROLES: "users,posts", ...env });
  await run.exited;
  const findings = JSON.parse(run.output()) as Finding[];
  return findings.filter(({ what }) => /^(PostgreSQL|embedded)/.test(what));
}

const saying = (findings: readonly Finding[], words: RegExp): string | undefined =>
  findings.find(({ says }) => words.test(says))?.state;

test("without DATABASE_URL the folder of the embedded database is checked", async () => {
  const folder = await temporaryFolder("doctor");
  expect(await findingsOf({ TIMELINE_DATA_DIR: folder })).toEqual([expect.objectContaining({ state: "ok" })]);
  writeFileSync(`${folder}/file`, "");
  expect(await findingsOf({ TIMELINE_DATA_DIR: `${folder}/file` })).toEqual([
    expect.objectContaining({ state: "fault" }),
  ]);
});

const ifPostgres = postgresPrograms() === undefined ? describe.skip : describe;

ifPostgres("doctor on PostgreSQL", () => {
  let server: Postgres;

  beforeAll(async () => {
    server = await startPostgres();
  }, 60_000);
  afterAll(() => server?.stop());

  test("finds its version, a schema that is not there yet, room, sessions of one's own", async () => {
    const found = await findingsOf({ DATABASE_URL: server.url });
    expect(found.map(({ state }) => state)).toEqual(["ok", "warning", "ok", "ok", "ok"]);
    expect(found[1]?.says).toMatch(/migrations are not applied/);
    expect(new Set(found.map(({ what }) => what))).toEqual(
      new Set([`PostgreSQL 127.0.0.1:${new URL(server.url).port}`]),
    );
  });

  test("warns where the pool leaves no room for other processes", async () => {
    const found = await findingsOf({ DATABASE_URL: server.url, TIMELINE_DATABASE_POOL_SIZE: "90" });
    expect(saying(found, /max_connections 200 is enough for 2 processes/)).toBe("warning");
  });

  test("refuses a schema of a version after the next", async () => {
    const client = new pg.Client(server.url);
    await client.connect();
    await client.query("CREATE DATABASE newer");
    await client.end();
    const url = server.url.replace(/\/postgres$/, "/newer");
    const newer = new pg.Client(url);
    await newer.connect();
    await newer.query("CREATE TABLE avion_migrations (component text, name text, checksum text)");
    await newer.query("INSERT INTO avion_migrations VALUES ('posts', '9999_from_the_future.sql', 'x')");
    await newer.end();
    expect(saying(await findingsOf({ DATABASE_URL: url }), /posts\/9999_from_the_future.sql.*of no later one/)).toBe(
      "fault",
    );
  });

  test("a wrong password is a fault", async () => {
    await addGuardedRole(server.url, "right");
    const url = server.url.replace("timeline@", "guarded:hunter2marker@");
    const found = await findingsOf({ DATABASE_URL: url });
    expect(saying(found, /password authentication failed/)).toBe("fault");
    expect(JSON.stringify(found)).not.toContain("hunter2marker");
    expect(saying(await findingsOf({ DATABASE_URL: url.replace("hunter2marker", "right") }), /^version/)).toBe("ok");
  });

  const ifPooler = hasPgbouncer() ? test : test.skip;
  ifPooler("finds a pooler that keeps no sessions (skipped where pgbouncer is not installed)", async () => {
    const pooler = await startPgbouncer(server.url);
    try {
      const found = await findingsOf({ DATABASE_URL: pooler.url });
      expect(saying(found, /prepared statements/)).toBe("fault");
      expect(saying(found, /NOTIFY/)).toBe("fault");
    } finally {
      await pooler.stop();
    }
  });
});
