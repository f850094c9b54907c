import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { createOutboxStore, type OutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";

describe.each(DATABASES)("claims of an outbox on $name", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;

  beforeAll(async () => {
    server = await start();
  });
  beforeEach(async () => {
    db = await server.emptyDatabase([OUTBOX_MIGRATIONS]);
  });
  afterAll(() => server.stop());

  // Invariant 11.
  test("owners take turns: very many events of one owner delay no other, and none is left out", async () => {
    const claimedBy = async (store: OutboxStore): Promise<Map<string, number>> => {
      const rows = await store.claim(100, 10_000);
      await store.markPublished(rows.map(({ id }) => id));
      const owners = new Map<string, number>();
      for (const { key } of rows) {
        const owner = key.split(":")[0] as string;
        owners.set(owner, (owners.get(owner) ?? 0) + 1);
      }
      return owners;
    };
    const fill = (owner: string, events: number) =>
      db.query(
        `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
         SELECT 'posts', $1, $1 || ':' || n, 'log.it', n, '{}' FROM generate_series(1, $2::int) n`,
        [owner, events],
      );
    const store = createOutboxStore(db, "posts");
    await fill("hot", 1_000);
    expect(await claimedBy(store)).toEqual(new Map([["hot", 100]]));
    for (const owner of ["a", "b", "z"]) await fill(owner, 10);
    const next = await claimedBy(store);
    expect([next.get("a"), next.get("b"), next.get("z"), next.get("hot")]).toEqual([10, 10, 10, 70]);

    for (let n = 0; n < 250; n++) await fill(`many${n}`, 1);
    const seen = new Map<string, number>();
    for (let round = 0; round < 3; round++)
      for (const [owner, events] of await claimedBy(store)) seen.set(owner, (seen.get(owner) ?? 0) + events);
    expect([...seen.keys()].filter((owner) => owner.startsWith("many"))).toHaveLength(250);
    expect((await store.backlog()).waiting).toBe(1_000 + 250 - 100 - 70 - [...seen.values()].reduce((a, b) => a + b));
  });

  // Invariant 11.
  test.each([
    { held: "have one event each", events: 1 },
    { held: "have more events of the same key", events: 2 },
  ])("the events of 500 owners in the hands of another relay delay no other owner, where these $held", async (one) => {
    await db.query(
      `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       SELECT 'posts', lpad(n::text, 4, '0'), n, 'log.it', n || ':' || e, '{}'
       FROM generate_series(1, 1200) n CROSS JOIN generate_series(1, $1::int) e`,
      [one.events],
    );
    const hanging = await createOutboxStore(db, "posts").claim(500, 10_000);
    expect(hanging.map(({ key }) => Number(key)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 500 }, (_, n) => n + 1),
    );
    const store = createOutboxStore(db, "posts");
    const claimed = [...(await store.claim(500, 10_000)), ...(await store.claim(500, 10_000))];
    expect(claimed.map(({ key }) => Number(key)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 700 }, (_, n) => n + 501),
    );
    expect(await store.claim(500, 10_000)).toEqual([]);
  });

  // Invariant 11.
  test("a claim after that of the last owner takes the next events of the first ones", async () => {
    await db.query(
      `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       SELECT 'posts', 'o' || n % 10, n, 'log.it', n, '{}' FROM generate_series(1, 20) n`,
    );
    const store = createOutboxStore(db, "posts");
    const claimed = [await store.claim(10, 10_000), await store.claim(10, 10_000), await store.claim(10, 10_000)];
    expect(claimed.map((events) => events.length)).toEqual([10, 10, 0]);
  });

  const toggle = (events: number, source: "posts" | "edges", key = "bob:ada") =>
    db.query(
      `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       SELECT $2, 'ada', $3, 'log.it', $3 || ':' || lpad(n::text, 4, '0'), '{}' FROM generate_series(1, $1::int) n`,
      [events, source, key],
    );

  const claimed = async (store: OutboxStore): Promise<string[]> => {
    const rows = await store.claim(500, 10_000);
    await store.markPublished(rows.map(({ id }) => id));
    return rows.map(({ messageId }) => messageId);
  };

  // Invariant 11.
  test("an edge that is changed thousands of times delays no other edge, and its newest version is published", async () => {
    await toggle(5_000, "edges");
    await toggle(1, "edges", "cid:ada");
    const store = createOutboxStore(db, "edges");
    const published = [await claimed(store), await claimed(store), await claimed(store), await claimed(store)].flat();
    expect(published).toContain("cid:ada:0001");
    const versions = published.filter((id) => id.startsWith("bob:"));
    expect([versions[0], versions.at(-1)]).toEqual(["bob:ada:0001", "bob:ada:5000"]);
    expect(versions).toEqual([...versions].sort());
    expect((await store.backlog()).waiting).toBe(0);
  });

  // Invariant 1.
  test("an event of a drop is never left out, however many follow", async () => {
    await toggle(3, "posts");
    const store = createOutboxStore(db, "posts");
    expect([await claimed(store), await claimed(store), await claimed(store)]).toEqual([
      ["bob:ada:0001"],
      ["bob:ada:0002"],
      ["bob:ada:0003"],
    ]);
  });

  test("a claim looks at little more than it takes, also where the queue filled up after a long idle time", async () => {
    const store = createOutboxStore(db, "posts");
    for (let idle = 0; idle < 12; idle++) await store.claim(500, 10_000);
    await db.query(
      `INSERT INTO public.outbox (source, owner, key, subject, message_id, body)
       SELECT 'posts', 'hot', 'k' || n, 'log.it', n, '{}' FROM generate_series(1, 20000) n`,
    );
    const explained: string[] = [];
    const explaining: Db = {
      ...db,
      query: async <Row>(sql: string, params?: readonly unknown[], how?: Parameters<Db["query"]>[2]) => {
        const plan = await db.query<{ "QUERY PLAN": string }>(`EXPLAIN (ANALYZE, BUFFERS) ${sql}`, params, how);
        explained.push(...plan.map((line) => line["QUERY PLAN"]));
        return [] as Row[];
      },
    };
    await createOutboxStore(explaining, "posts").claim(500, 10_000);
    const [, pages = ""] = /shared hit=(\d+)/.exec(explained.join("\n")) ?? [];
    expect(Number(pages)).toBeGreaterThan(0);
    expect(Number(pages)).toBeLessThan(20_000);
  });
});
