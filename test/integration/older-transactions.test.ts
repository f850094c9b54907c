import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { codeOf } from "../../src/kernel/errors.js";
import { pause } from "../../src/kernel/time.js";
import type { Db, Queries } from "../../src/platform/db/db.js";
import { untilOlderEnded } from "../../src/platform/db/older-transactions.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";

/** Longer than the waiting looks, several times. */
const A_WHILE_MS = 300;

describe.each(DATABASES)("waiting for older transactions on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let db: Db;

  beforeAll(async () => {
    server = await start();
    db = await server.newDatabase();
    await db.run("CREATE TABLE item (id int)");
  });
  afterAll(() => server.stop());

  /** Runs a transaction that ends once `end` is called. */
  async function opened(on: Db, work: (queries: Queries) => Promise<unknown>) {
    let end = (): void => undefined;
    let began = (): void => undefined;
    const ending = new Promise<void>((resolve) => (end = resolve));
    const beginning = new Promise<void>((resolve) => (began = resolve));
    const ended = on.transaction(async (queries) => {
      await work(queries);
      began();
      await ending;
    });
    await beginning;
    return {
      end: async () => {
        end();
        await ended;
      },
    };
  }

  const writing = ({ query }: Queries) => query("INSERT INTO item VALUES (1)");
  const reading = ({ query }: Queries) => query("SELECT FROM item");
  const settled = async (waiting: Promise<void>): Promise<boolean> => {
    let done = false;
    void waiting.then(
      () => (done = true),
      () => (done = true),
    );
    await pause(A_WHILE_MS);
    return done;
  };

  test("nothing is waited for where nothing runs", () => untilOlderEnded(db));

  // Embedded, there is one connection.
  const elsewhere = name === "PGlite" ? test.skip : test;

  elsewhere.each([
    ["writes", writing],
    ["reads", reading],
  ])("an older transaction that %s is waited for", async (_, work) => {
    const older = await opened(db, work);
    const waiting = untilOlderEnded(db);
    expect(await settled(waiting)).toBe(false);
    const younger = await opened(db, work);
    await older.end();
    await waiting;
    await younger.end();
  });

  elsewhere("one that reads is waited for as long as a statement may take, one that wrote to its end", async () => {
    const reader = await opened(db, reading);
    await untilOlderEnded(db, { statementsEndWithinMs: A_WHILE_MS });
    const writer = await opened(db, writing);
    const waiting = untilOlderEnded(db, { statementsEndWithinMs: 0 });
    expect(await settled(waiting)).toBe(false);
    await writer.end();
    await waiting;
    await reader.end();
  });

  elsewhere("transactions of other databases are not waited for", async () => {
    const other = await server.newDatabase();
    const apart = await opened(other, ({ query }) => query("SELECT"));
    await untilOlderEnded(db);
    await apart.end();
  });

  elsewhere("a role without rights waits, too", async () => {
    await db.run("CREATE ROLE plain");
    const older = await opened(db, writing);
    const plain = opened(db, async (queries) => {
      await queries.run("SET LOCAL ROLE plain");
      await untilOlderEnded(queries);
    });
    expect(await settled(plain.then(() => undefined))).toBe(false);
    await older.end();
    await (await plain).end();
  });

  elsewhere("a process that stops does not wait", async () => {
    const older = await opened(db, writing);
    const stopping = new AbortController();
    const waiting = untilOlderEnded(db, { stopping: stopping.signal }).catch(codeOf);
    stopping.abort();
    expect(await waiting).toBe("unavailable");
    await older.end();
  });
});
