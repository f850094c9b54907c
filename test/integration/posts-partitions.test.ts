import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "@jest/globals";
import { RemoteKind, Visibility } from "../../src/gen/avion/posts.js";
import { silent } from "../../src/kernel/logger.js";
import { DAY, MINUTE } from "../../src/kernel/time.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { monthOf, monthsFrom } from "../../src/posts/drops/ids.js";
import { POSTS_MIGRATIONS } from "../../src/posts/index.js";
import { createMaintenanceRound, type MaintenanceDeps, startMaintenance } from "../../src/posts/maintenance.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { DATABASES, type DatabaseServer, longTest } from "../support/databases.js";
import { becomes, eventually } from "../support/eventually.js";
import { postgresPrograms, startPostgres } from "../support/postgres.js";
import { asAnotherProcess, POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { quickTest as test } from "../support/suite.js";

const TABLES = ["counts", "drops", "reactions", "revisions"];
describe.each(DATABASES)("partitions on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let posts: PostsHarness;
  let now = Date.UTC(2026, 4, 17);
  const clock = (): number => now;

  beforeAll(async () => {
    server = await start();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    now = Date.UTC(2026, 4, 17);
    posts = await startPosts(await server.emptyDatabase(), {
      now: clock,
      config: { ...POSTS_CONFIG, retentionDays: 100 },
    });
  });
  afterEach(() => posts.stop());

  const round = (options: Partial<MaintenanceDeps> = {}): Promise<void> =>
    createMaintenanceRound(
      { store: posts.store, now: clock, retentionDays: 0, log: silent, ...options },
      "this process",
    )();

  /** The partitions by table, as the database knows them. */
  const partitions = async (): Promise<Record<string, string[]>> => {
    const rows = await posts.db.query<{ parent: string; name: string }>(
      `SELECT i.inhparent::regclass::text AS parent, c.relname AS name
       FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relkind = 'r' ORDER BY 2`,
    );
    const found: Record<string, string[]> = {};
    for (const row of rows) {
      const table = row.parent.replace("posts.", "");
      found[table] = [...(found[table] ?? []), row.name.slice(-7)];
    }
    return found;
  };
  const ofAll = (months: string[]): Record<string, string[]> =>
    Object.fromEntries(TABLES.map((table) => [table, months]));

  const draftAt = (created_at: number) => ({ created_at, user_id: "ada", visibility: Visibility.PUBLIC, body: "x" });

  longTest(name)("however many times are asked for, months of the last ten years at most get partitions", async () => {
    await posts.stop();
    posts = await startPosts(posts.db, { now: clock });
    for (let month = monthOf(0); month.end <= now; month = monthOf(month.end))
      await posts.call.createDrop(draftAt(month.end - 1)).catch(() => undefined);
    expect(await posts.store.partitions.months()).toHaveLength(12 * 10);
    expect(await refusal(posts.call.createDrop(draftAt(now - 3_651 * DAY)))).toBe(
      "INVALID_ARGUMENT created_at: is more than 3650 days ago",
    );
  });

  test("this month and three more are made, and made once however many processes do so", async () => {
    await Promise.all([round(), round()]);
    await round();
    expect(await partitions()).toEqual(ofAll(["2026_05", "2026_06", "2026_07", "2026_08"]));
  });

  test("months roll over: drops before and after the turn are found, whole pages go across it", async () => {
    await round();
    const ids: string[] = [];
    now = Date.UTC(2026, 5, 1) - 3;
    for (let n = 0; n < 6; n++) {
      ids.unshift(await post(posts));
      now += 1;
    }
    await posts.call.likeDrop({ drop_id: ids[0] as string, user_id: "bob" });
    await posts.call.likeDrop({ drop_id: ids[5] as string, user_id: "bob" });
    await posts.countAll();
    const sizes = await posts.db.query("SELECT count(*) AS n FROM posts.drops_2026_05");
    expect(sizes).toEqual([{ n: 3 }]);
    const { drops } = await posts.call.getDropsByUserId({ user_id: "ada" });
    expect(drops.map(({ drop_id }) => drop_id)).toEqual(ids);
    expect((await posts.call.getCounts({ drop_ids: ids })).counts.map(({ likes }) => likes)).toEqual([
      1, 0, 0, 0, 0, 1,
    ]);
    now = Date.UTC(2026, 6, 2);
    await round();
    expect((await partitions())["drops"]).toEqual(["2026_05", "2026_06", "2026_07", "2026_08", "2026_09", "2026_10"]);
  });

  test("a month nobody has made is made by the drops that need it, by two processes at once", async () => {
    const other = await asAnotherProcess(posts.db);
    const another = await startPosts(other, { now: clock });
    try {
      const all = Array.from({ length: 20 }, (_, n) =>
        (n % 2 === 0 ? posts : another).call.createDrop(draftAt(Date.UTC(2026, 1 + (n % 4), 7, 8))),
      );
      const made = (await Promise.all(all)).map(({ drop }) => drop?.drop_id as string);
      expect(await partitions()).toEqual(ofAll(["2026_02", "2026_03", "2026_04", "2026_05"]));
      expect((await posts.call.getDrops({ drop_ids: made })).results).toHaveLength(20);
      expect(await posts.written()).toHaveLength(20);
    } finally {
      await another.stop();
      if (other !== posts.db) await other.close();
    }
  });

  test("drops older than the retention are refused, and removed with their month", async () => {
    const edge = now - 100 * DAY;
    const old = await post(posts, draftAt(edge));
    await posts.call.likeDrop({ drop_id: old, user_id: "bob" });
    expect(await refusal(posts.call.createDrop(draftAt(edge - 1)))).toBe(
      "INVALID_ARGUMENT created_at: is before the time down to which drops are kept",
    );
    expect(await refusal(posts.call.createDrop(draftAt(now + 1)))).toBe(
      "INVALID_ARGUMENT created_at: is in the future",
    );
    const young = await post(posts);
    const told = async () => (await posts.call.getRetention()).kept_since;
    expect(await told()).toBe(0);
    await round({ retentionDays: 100 });
    expect(await told()).toBe(Date.UTC(2026, 1, 1));
    expect((await posts.call.getDrop({ drop_id: old })).drop?.drop_id).toBe(old);
    now = Date.UTC(2026, 2, 1) + 100 * DAY;
    await round({ retentionDays: 100 });
    expect(await refusal(posts.call.getDrop({ drop_id: old }))).toMatch(/^NOT_FOUND/);
    expect((await posts.call.getDrop({ drop_id: young })).drop?.drop_id).toBe(young);
    expect(await told()).toBe(Date.UTC(2026, 2, 1));
    expect(await partitions()).toEqual(ofAll(["2026_05", "2026_06", "2026_07", "2026_08", "2026_09"]));
    expect(await posts.db.query("SELECT FROM pg_class WHERE relname LIKE '%2026\\_02'")).toEqual([]);
  });

  test("the reposts of drops whose month is removed are gone at once, and deleted by the maintenance", async () => {
    const [old, young] = [await post(posts, draftAt(now - 100 * DAY)), await post(posts)];
    const ids: string[] = [];
    for (const drop_id of [old, young]) ids.push((await posts.call.shareDrop({ drop_id, user_id: "bob" })).repost_id);
    const [gone, kept] = ids as [string, string];
    await posts.store.partitions.drop(monthOf(now - 100 * DAY));
    for (const viewer_id of ["", "bob"]) {
      expect(await refusal(posts.call.getDrop({ drop_id: gone, viewer_id }))).toMatch(/^NOT_FOUND/);
      const { results } = await posts.call.getDrops({ drop_ids: ids, viewer_id });
      expect(results.map(({ drop }) => drop?.drop_id)).toEqual([kept]);
    }
    await posts.written();
    now = Date.UTC(2026, 2, 1) + 100 * DAY;
    await round({ retentionDays: 100 });
    expect((await posts.written()).map(({ body }) => body)).toEqual([{ drop_id: gone, user_id: "bob" }]);
    expect((await posts.call.getDrop({ drop_id: gone })).tombstone?.id).toBe(gone);
    expect((await posts.call.getDrop({ drop_id: kept })).drop?.repost_of).toBe(young);
    await posts.call.deleteDrop({ drop_id: gone, user_id: "bob" });
    expect(await posts.written()).toEqual([]);
  });

  test("a repost goes with its original where the clock of its process was behind, in the month before", async () => {
    now = Date.UTC(2026, 5, 1);
    const original = await post(posts);
    now -= 5 * MINUTE;
    const { repost_id } = await posts.call.shareDrop({ drop_id: original, user_id: "bob" });
    expect(repost_id < original).toBe(true);
    await posts.call.deleteDrop({ drop_id: original, user_id: "ada" });
    expect((await posts.call.getDrop({ drop_id: repost_id })).tombstone?.id).toBe(repost_id);
  });

  test("removed drops stay removed when the retention becomes longer", async () => {
    now = Date.UTC(2026, 4, 17);
    await round({ retentionDays: 30 });
    for (const retentionDays of [100, 0]) await round({ retentionDays });
    expect((await posts.call.getRetention()).kept_since).toBe(Date.UTC(2026, 3, 1));
    await posts.stop();
    posts = await startPosts(posts.db, { now: clock });
    const march = Date.UTC(2026, 2, 31);
    const refused = "INVALID_ARGUMENT created_at: is before the time down to which drops are kept";
    expect(await refusal(posts.call.createDrop(draftAt(march)))).toBe(refused);
    const remote = { uri: "https://far.example/1", kind: RemoteKind.DROP, document: "{}" };
    expect(await refusal(posts.call.putRemoteObject({ ...remote, created_at: march }))).toBe(refused);
    await posts.call.createDrop(draftAt(Date.UTC(2026, 3, 1)));
  });

  test("remote drops are removed with the same month as local ones, and others stay", async () => {
    await posts.stop();
    posts = await startPosts(posts.db, { now: clock });
    const put = (uri: string, created_at: number) =>
      posts.call.putRemoteObject({ uri, kind: RemoteKind.DROP, document: "{}", created_at });
    const [old, edge, young] = ["old", "edge", "young"].map((name) => `https://far.example/${name}`);
    // Young enough for its month to be kept, and older than 100 days.
    for (const [uri, at] of [
      [old, Date.UTC(2026, 1, 1) - 1],
      [edge, Date.UTC(2026, 1, 1)],
      [young, now - 1],
    ] as const)
      await put(uri as string, at);
    await round({ retentionDays: 100 });
    expect((await posts.call.getRetention()).kept_since).toBe(Date.UTC(2026, 1, 1));
    expect(await refusal(posts.call.getRemoteObject({ uri: old as string }))).toMatch(/^NOT_FOUND/);
    for (const uri of [edge, young]) await posts.call.getRemoteObject({ uri: uri as string });
  });

  test("an interrupted removal of a month is finished", async () => {
    const [first, second] = monthsFrom(now, 2);
    await round();
    await posts.db.run("ALTER TABLE posts.drops DETACH PARTITION posts.drops_2026_05 CONCURRENTLY");
    await posts.db.run("DROP TABLE posts.drops_2026_05");
    await posts.db.run("ALTER TABLE posts.reactions DETACH PARTITION posts.reactions_2026_05 CONCURRENTLY");
    expect((await posts.store.partitions.months())[0]).toEqual(first);
    await posts.store.partitions.drop(first as never);
    expect((await posts.store.partitions.months())[0]).toEqual(second);
    expect(await posts.db.query("SELECT FROM pg_class WHERE relname LIKE '%2026\\_05'")).toEqual([]);
  });

  test("a month with missing partitions is completed", async () => {
    const month = monthOf(now);
    await posts.store.partitions.make(month);
    await posts.db.run("DROP TABLE posts.counts_2026_05");
    await posts.db.run("ALTER TABLE posts.drops DETACH PARTITION posts.drops_2026_05");
    expect(await posts.store.partitions.make(month)).toBe(true);
    expect(await posts.store.partitions.make(month)).toBe(false);
    expect(await partitions()).toEqual(ofAll(["2026_05"]));
  });

  const onServer = name === "PGlite" ? test.skip : test;

  onServer("making a month waits for no reader and no writer", async () => {
    await posts.store.partitions.make(monthOf(now));
    const id = await post(posts);
    await posts.db.transaction(async (tx) => {
      await tx.query("SELECT FROM posts.drops WHERE user_id = 'ada'");
      await tx.query("UPDATE posts.drops SET body = 'held' WHERE drop_id = $1", [id]);
      expect(await posts.store.partitions.make(monthOf(now + 40 * DAY))).toBe(true);
    });
  });

  onServer("a detaching that was cut off is finished", async () => {
    const month = monthOf(now);
    await posts.store.partitions.make(month);
    await posts.db.transaction(async (tx) => {
      await tx.query("SELECT FROM posts.drops");
      const cut = posts.store.partitions.drop(month).catch((error: unknown) => error);
      const cancelled = async () =>
        (
          await posts.db.query(
            `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE query LIKE 'ALTER TABLE%CONCURRENTLY' AND wait_event_type = 'Lock'`,
          )
        ).length === 1;
      await eventually(cancelled, "the detaching waits, and is cut off");
      expect(await cut).toMatchObject({ code: "unavailable", cause: { code: "57014" } });
    });
    expect(await posts.db.query("SELECT FROM pg_inherits WHERE inhdetachpending")).toHaveLength(1);
    await posts.store.partitions.drop(month);
    expect(await partitions()).toEqual({});
  });
});

const installed = postgresPrograms() === undefined ? test.skip : test;

installed("a role that may make no partitions says so before the month begins, and is not ready in it", async () => {
  const server = await startPostgres();
  const open = (url: string) => openPostgres({ url, poolSize: 2, name: "test" }, silent);
  const admin = open(server.url);
  await migrate(admin, [OUTBOX_MIGRATIONS, POSTS_MIGRATIONS], silent);
  await admin.run(`CREATE ROLE bounded LOGIN; GRANT USAGE ON SCHEMA posts TO bounded;
    GRANT ALL ON ALL TABLES IN SCHEMA posts, public TO bounded; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO bounded`);
  const bounded = open(server.url.replace("timeline@", "bounded@"));
  let now = Date.UTC(2026, 4, 17);
  const clock = (): number => now;
  const posts = await startPosts(bounded, { now: clock });
  const errors: unknown[] = [];
  const log = { ...silent, error: (fields: object) => void errors.push(fields) };
  const maintaining = { store: posts.store, now: clock, retentionDays: 0, log, everyMs: 10 };
  await createPostsStore(admin).partitions.make(monthOf(now));
  const maintenance = startMaintenance(maintaining);
  const other = startMaintenance(maintaining);
  const create = () => post(posts, { user_id: "ada" });
  try {
    await becomes(async () =>
      expect(errors).toMatchObject([{ task: "months-ahead", error: expect.stringContaining("2026-06") }]),
    );
    expect(maintenance.notReady()).toBeUndefined();
    await create();
    now = Date.UTC(2026, 5, 17);
    for (const [rights, words] of [
      ["", "lacks CREATE on the schema posts"],
      ["GRANT CREATE ON SCHEMA posts TO bounded", "is not the owner of the table posts.drops"],
    ] as const) {
      if (rights !== "") await admin.run(rights);
      const lack = `the month 2026-06 has no partitions for drops, and none can be made: the database's role ${words}`;
      await becomes(async () =>
        expect([maintenance.notReady(), other.notReady()]).toEqual(Array(2).fill(`posts: ${lack}`)),
      );
      expect(await Promise.all([refusal(create()), refusal(create())])).toEqual(Array(2).fill(`UNAVAILABLE ${lack}`));
    }
    await createPostsStore(admin).partitions.make(monthOf(now));
    await becomes(async () => expect([maintenance.notReady(), other.notReady()]).toEqual([undefined, undefined]));
    await create();
  } finally {
    await Promise.all([maintenance.close(), other.close()]);
    await posts.stop();
    await Promise.all([bounded.close(), admin.close()]);
    await server.stop();
  }
});
