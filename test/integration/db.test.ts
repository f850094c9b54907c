import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { type Logger, silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { SQLSTATE, sqlState } from "../../src/platform/db/errors.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { refusalOf } from "../../src/platform/refusals.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { TcpProxy } from "../support/proxy.js";

describe.each(DATABASES)("$name as a database", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;

  beforeAll(async () => {
    server = await start();
    db = await server.newDatabase();
    await db.run("CREATE TABLE item (id bigint PRIMARY KEY, tags text[], at bigint); CREATE TABLE other (id int)");
  });
  afterAll(() => server.stop());

  test("values come back as they went in: numbers of 64 bits, arrays, null", async () => {
    await db.query("INSERT INTO item VALUES ($1, $2, $3)", [7, ["a,b", '"', "é"], 1_700_000_000_000]);
    const rows = await db.query("SELECT * FROM item WHERE id = ANY($1::bigint[])", [[7, 8]]);
    expect(rows).toEqual([{ id: 7, tags: ["a,b", '"', "é"], at: 1_700_000_000_000 }]);
    const [row] = await db.query("SELECT $1::text AS none, count(*) AS n FROM item", [null]);
    expect(row).toEqual({ none: null, n: 1 });
  });

  test("a transaction that rejects leaves nothing, and the next one works", async () => {
    const failing = db.transaction(async (tx) => {
      await tx.query("INSERT INTO item (id) VALUES (20)");
      throw new Error("not so");
    });
    await expect(failing).rejects.toThrow("not so");
    await db.transaction(async (tx) => void (await tx.query("INSERT INTO item (id) VALUES (21)")));
    expect(await db.query("SELECT id FROM item WHERE id IN (20, 21)")).toEqual([{ id: 21 }]);
  });

  test("an error carries its SQLSTATE", async () => {
    await db.query("INSERT INTO item (id) VALUES (30)");
    const error: unknown = await db.query("INSERT INTO item (id) VALUES (30)").catch((caught: unknown) => caught);
    expect(sqlState(error)).toBe(SQLSTATE.uniqueViolation);
  });

  test("a NOTIFY is heard", async () => {
    let heard = 0;
    await db.listen("news", () => {
      heard += 1;
    });
    await db.query("SELECT pg_notify('news', '')");
    await eventually(() => heard === 1, "the notification is heard");
  });
});

const installed = postgresPrograms() === undefined ? describe.skip : describe;

installed("PostgreSQL that goes away", () => {
  test("the database is unavailable while it does not run, and listens again once it is back", async () => {
    const server = await startPostgres();
    const db = openPostgres({ url: server.url, poolSize: 2, name: "test" }, silent);
    try {
      let heard = 0;
      await db.listen("news", () => {
        heard += 1;
      });
      await server.kill();
      const error: unknown = await db.query("SELECT 1").catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(AppError);
      expect((error as AppError).code).toBe("unavailable");
      await server.start();
      await eventually(() => heard === 1, "told that it is back");
      await db.query("SELECT pg_notify('news', '')");
      await eventually(() => heard === 2, "the notification is heard");
    } finally {
      await db.close();
      await server.stop();
    }
  });

  // Invariant 8.
  test("a server that no longer answers over an open connection is unavailable, and asked anew over another", async () => {
    const server = await startPostgres();
    const { port } = new URL(server.url);
    const proxy = await TcpProxy.open(Number(port));
    const url = server.url.replace(`:${port}/`, `:${new URL(proxy.url("nats")).port}/`);
    const db = openPostgres({ url, poolSize: 2, name: "test", answerMs: 2_000 }, silent);
    try {
      // As many connections are open as are asked over.
      await Promise.all([1, 2].map(() => db.query("SELECT pg_sleep(0.1)")));
      proxy.set("drop");
      const asked = [db.query("SELECT 2"), db.transaction(({ query }) => query("SELECT 3"))];
      for (const result of await Promise.allSettled(asked))
        expect(result).toMatchObject({ status: "rejected", reason: { code: "unavailable" } });
      proxy.set("pass");
      await eventually(async () => (await db.query("SELECT 4").catch(() => [])).length === 1, "it answers");
    } finally {
      await db.close();
      await proxy.close();
      await server.stop();
    }
  });

  // Invariant 8.
  test("a kept connection whose server turns read-only leaves the pool: transactions, statements and notifications move on", async () => {
    const [former, successor] = [await startPostgres(), await startPostgres()];
    const proxy = await TcpProxy.open(Number(new URL(former.url).port));
    const url = former.url.replace(/:\d+\//, `:${new URL(proxy.url("nats")).port}/`);
    const db = openPostgres({ url, poolSize: 3, name: "test", staysReadOnlyMs: 0 }, silent);
    const admins = [former, successor].map((server) =>
      openPostgres({ url: server.url, poolSize: 1, name: "a" }, silent),
    );
    const [admin, next] = admins as [Db, Db];
    try {
      for (const one of admins) await one.run("CREATE TABLE item (id int)");
      let heard = 0;
      await db.listen("news", () => {
        heard += 1;
      });
      await Promise.all([1, 2, 3].map(() => db.query("SELECT pg_sleep(0.2)")));
      await admin.run("ALTER SYSTEM SET default_transaction_read_only = on");
      await admin.run("SELECT pg_reload_conf()");
      // The server tells all sessions at once.
      const setting = "SELECT current_setting('default_transaction_read_only') AS value";
      const isTold = async () => (await admin.query<{ value: string }>(setting))[0]?.value === "on";
      await eventually(isTold, "sessions are told to take no writes");
      // The old sessions stay open, as behind a proxy that only leads new ones elsewhere.
      proxy.aim(Number(new URL(successor.url).port));
      const write = () => db.transaction(({ query }) => query("INSERT INTO item VALUES (1) RETURNING id"));
      const read = () => db.query("SELECT count(*) AS n FROM item");
      const first = await Promise.allSettled([write(), write(), read()]);
      const refused = { status: "rejected", reason: { code: "unavailable" } };
      expect(first).toMatchObject([refused, refused, { status: "fulfilled", value: [{ n: 0 }] }]);
      for (let tries = 0; tries < 3; tries++) expect(await write()).toEqual([{ id: 1 }]);
      expect(await read()).toEqual([{ n: 3 }]);
      await eventually(() => heard > 0, "told that notifications may have been missed");
      await next.query("SELECT pg_notify('news', '')");
      await eventually(() => heard > 1, "the notification of the successor is heard");
      expect(await next.query("SELECT count(*) AS n FROM item")).toEqual([{ n: 3 }]);
      const sessions = "SELECT FROM pg_stat_activity WHERE application_name = 'test'";
      await eventually(
        async () => (await admin.query(sessions)).length === 0,
        "no session stays with the former server",
      );
    } finally {
      await Promise.all([db, ...admins].map((one) => one.close()));
      await proxy.close();
      await Promise.all([former, successor].map((server) => server.stop()));
    }
  });

  // Invariant 8.
  test("statements that the role may not run are outages, are logged once, and leave the process ready for others", async () => {
    const server = await startPostgres();
    const admin = openPostgres({ url: server.url, poolSize: 1, name: "a" }, silent);
    const url = Object.assign(new URL(server.url), { username: "bounded" }).href;
    const errors: unknown[] = [];
    const log = { ...silent, error: (fields: unknown) => void errors.push(fields) } as Logger;
    const db = openPostgres({ url, poolSize: 1, name: "test" }, log);
    try {
      await admin.run("CREATE ROLE bounded LOGIN; CREATE TABLE item (id int); CREATE TABLE other (id int)");
      for (let round = 0; round < 3; round++)
        for (const table of ["item", "other"]) {
          await expect(db.query(`SELECT id FROM ${table}`)).rejects.toMatchObject({ code: "unavailable" });
          expect(refusalOf(db)).toBeUndefined();
          expect(await db.query("SELECT 1 AS one")).toEqual([{ one: 1 }]);
        }
      expect(errors).toMatchObject([{ error: expect.stringContaining("permission denied for table item") }]);
      await admin.run("GRANT SELECT ON item TO bounded");
      expect(await db.query("SELECT id FROM item")).toEqual([]);
    } finally {
      await Promise.all([db, admin].map((one) => one.close()));
      await server.stop();
    }
  });

  // Invariant 8.
  test("a statement that the server gives up for lack of time is an outage", async () => {
    const server = await startPostgres();
    const db = openPostgres({ url: server.url, poolSize: 1, name: "test" }, silent);
    try {
      const late = db.transaction(async ({ run, query }) => {
        await run("SET LOCAL statement_timeout = 50");
        await query("SELECT pg_sleep(60)");
      });
      await expect(late).rejects.toMatchObject({ code: "unavailable" });
    } finally {
      await db.close();
      await server.stop();
    }
  });

  test("a script runs as long as the server lets it, however long ago a statement would have been given up", async () => {
    const server = await startPostgres();
    const db = openPostgres({ url: server.url, poolSize: 1, name: "test", answerMs: 2_000 }, silent);
    try {
      await db.transaction(async ({ run, query }) => {
        await run("CREATE TABLE item AS SELECT 1 AS id; SELECT pg_sleep(2.5)");
        expect(await query("SELECT id FROM item")).toEqual([{ id: 1 }]);
      });
    } finally {
      await db.close();
      await server.stop();
    }
  });

  test("two transactions that block each other both succeed", async () => {
    const server = await startPostgres();
    const db = openPostgres({ url: server.url, poolSize: 4, name: "test" }, silent);
    try {
      await db.run("CREATE TABLE pair (id int PRIMARY KEY, n int); INSERT INTO pair VALUES (1, 0), (2, 0)");
      let arrived = 0;
      const both = () => arrived >= 2;
      const crossing = (first: number, second: number) =>
        db.transaction(async (tx) => {
          await tx.query("UPDATE pair SET n = n + 1 WHERE id = $1", [first]);
          arrived += 1;
          await eventually(both, "both hold their first row");
          await tx.query("UPDATE pair SET n = n + 1 WHERE id = $1", [second]);
        });
      await Promise.all([crossing(1, 2), crossing(2, 1)]);
      expect(await db.query("SELECT n FROM pair ORDER BY id")).toEqual([{ n: 2 }, { n: 2 }]);
    } finally {
      await db.close();
      await server.stop();
    }
  });
});
