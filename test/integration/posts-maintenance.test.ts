import { expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { HOUR, SECOND } from "../../src/kernel/time.js";
import { dropDeleted } from "../../src/posts/drops/events.js";
import { createMaintenanceRound, type MaintenanceDeps, startMaintenance } from "../../src/posts/maintenance.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { post } from "../support/posts.js";

describePosts("the maintenance of posts", { emptied: true }, (posts) => {
  const deps = (options: Partial<MaintenanceDeps> = {}): MaintenanceDeps => ({
    store: posts.store,
    now: Date.now,
    retentionDays: 0,
    log: silent,
    ...options,
  });
  const round = (options: Partial<MaintenanceDeps> = {}, holder = "me"): Promise<void> =>
    createMaintenanceRound(deps(options), holder)();
  const rows = async (table: string): Promise<number> =>
    (await posts.db.query<{ n: number }>(`SELECT count(*) AS n FROM posts.${table}`))[0]?.n as number;

  // Invariant 4.
  test("drops of a deleted actor that a process left behind are deleted with their events, and those that came at once", async () => {
    const actor = "https://far.example/users/mal";
    const insert = (from: number, to: number) =>
      posts.db.query(
        `INSERT INTO posts.remote_objects (uri, kind, actor_uri, created_at, visibility, fetched_at, expires_at)
         SELECT 'https://far.example/' || n, 1, $1, 1, 1, 1, 1 FROM generate_series($2::int, $3::int) n`,
        [actor, from, to],
      );
    // As a process leaves it that was killed right after the tombstone.
    await posts.store.remote.remove(actor, dropDeleted(actor));
    await insert(1, 4_500);
    await posts.db.query("UPDATE posts.remote_objects SET deleted_at = deleted_at - 61000 WHERE uri = $1", [actor]);
    // Another actor, whose drops are looked for meanwhile, ends nothing of the first.
    await posts.call.deleteRemoteObject({ uri: `${actor}-2` });
    await round();
    expect(await posts.written()).toHaveLength(4_500);
    const left = () => posts.db.query("SELECT uri FROM posts.remote_objects WHERE kind <> 1 AND NOT drops_removed");
    expect(await left()).toEqual([{ uri: `${actor}-2` }]);
    // A drop whose statement began before the tombstone's ended.
    await posts.db.query("UPDATE posts.remote_objects SET actor_uri = $1, deleted_at = NULL WHERE uri = $2", [
      `${actor}-2`,
      "https://far.example/7",
    ]);
    await round();
    expect((await posts.written()).map(({ key }) => key)).toEqual(["https://far.example/7"]);
    expect(await left()).toEqual([{ uri: `${actor}-2` }]);
  });

  // Invariant 4.
  test("what a process from before drops_removed writes beside a newer one is finished by it, or by the actor's deletion when it comes again", async () => {
    // The statements of migrations up to 0004: neither names the column, and a deleted actor still gets drops.
    const oldRemove = (uri: string) =>
      posts.db.query(
        `INSERT INTO posts.remote_objects AS o (uri, kind, fetched_at, expires_at, deleted_at) VALUES ($1, 0, $2::bigint, $2::bigint, $2::bigint - 61000)
         ON CONFLICT (uri) DO UPDATE SET document = '', public_key = '', webfinger = '', recipients = '{}',
           expires_at = excluded.expires_at, deleted_at = excluded.deleted_at
         WHERE o.deleted_at IS NULL`,
        [uri, Date.now()],
      );
    const oldPut = (uri: string, actorUri: string) =>
      posts.db.query(
        `INSERT INTO posts.remote_objects AS o
           (uri, kind, actor_uri, created_at, visibility, recipients, document, public_key, webfinger, fetched_at, expires_at)
         VALUES ($1, 1, $2, 1, 1, '{}', '', '', '', $3::bigint, $3::bigint)`,
        [uri, actorUri, Date.now()],
      );
    const actor = "https://old.example/users/mal";
    const keys = async () => (await posts.written()).map(({ key }) => key);
    await oldPut("https://old.example/1", actor);
    await oldRemove(actor);
    for (let rounds = 0; rounds < 2; rounds++) await round();
    expect(await keys()).toEqual(["https://old.example/1"]);
    expect(await posts.db.query("SELECT uri FROM posts.remote_objects WHERE drops_removed")).toEqual([{ uri: actor }]);
    await oldPut("https://old.example/2", actor);
    await round();
    await posts.call.deleteRemoteObject({ uri: actor });
    expect(await keys()).toEqual(["https://old.example/2"]);
    expect((await posts.call.getRemoteObject({ uri: "https://old.example/2" })).tombstone?.id).toBeDefined();
  });

  test("one round maintains months, keys, tombstones and counts", async () => {
    const kept = await post(posts, { idempotency_key: "young" });
    await post(posts, { idempotency_key: "old" });
    await posts.db.query("UPDATE posts.idempotency SET created_at = created_at - $1 WHERE key = 'old'", [25 * HOUR]);
    const gone = await post(posts);
    for (const drop_id of [kept, gone]) await posts.call.likeDrop({ drop_id, user_id: "bob" });
    await posts.countAll();
    await posts.db.query("UPDATE posts.counts SET likes = 7");
    await posts.call.deleteDrop({ drop_id: gone, user_id: "ada" });
    await round();
    expect(await posts.db.query("SELECT key FROM posts.idempotency")).toEqual([{ key: "young" }]);
    expect(await posts.store.partitions.months()).toHaveLength(4);
    expect([await rows("reactions"), await rows("counts")]).toEqual([1, 1]);
    expect((await posts.call.getCounts({ drop_ids: [kept] })).counts[0]?.likes).toBe(1);
    expect(await posts.db.query("SELECT FROM posts.drops WHERE purged")).toHaveLength(1);
    expect((await posts.call.getDrop({ drop_id: gone })).tombstone?.id).toBe(gone);
  });

  test("a purge runs in steps, and finishes after a crash", async () => {
    const ids = [await post(posts), await post(posts)];
    for (const id of ids)
      await posts.db.query(
        `INSERT INTO posts.reactions (drop_id, kind, actor_id, active, version, counted, changed_at)
         SELECT $1, 'like', 'u' || n, true, 1, true, 0 FROM generate_series(1, 250) n`,
        [id],
      );
    for (const drop_id of ids) {
      await posts.db.query("INSERT INTO posts.counts VALUES ($1, 250, 0, 0)", [drop_id]);
      await posts.call.deleteDrop({ drop_id, user_id: "ada" });
    }
    expect(await posts.store.cleanup.purgeTombstones(200)).toBe(200);
    expect([await rows("reactions"), await rows("counts")]).toEqual([300, 2]);
    await Promise.all([posts.store.cleanup.purgeTombstones(200), posts.store.cleanup.purgeTombstones(200)]);
    while ((await posts.store.cleanup.purgeTombstones(200)) > 0);
    expect([await rows("reactions"), await rows("counts")]).toEqual([0, 0]);
    expect(await posts.db.query("SELECT FROM posts.drops WHERE purged")).toHaveLength(2);
  });

  test("one process runs the maintenance; another takes over once the lease is released or has run out", async () => {
    const { lease } = posts.store;
    expect(await lease.hold("one", HOUR)).toBe(true);
    await round({}, "two");
    expect(await posts.store.partitions.months()).toEqual([]);
    await round({}, "one");
    expect(await posts.store.partitions.months()).toHaveLength(4);
    await lease.release("two");
    expect(await lease.hold("two", HOUR)).toBe(false);
    await lease.release("one");
    expect(await lease.hold("two", HOUR)).toBe(true);
    expect(await lease.hold("two", -SECOND)).toBe(true);
    expect(await lease.hold("one", HOUR)).toBe(true);
    expect(await lease.hold("two", HOUR)).toBe(false);
  });

  test("a failing task is logged once, delays no other, and is logged again after it has worked", async () => {
    const told: object[] = [];
    const log = { ...silent, error: (fields: object) => void told.push(fields) };
    let broken = true;
    const cleanup = {
      ...posts.store.cleanup,
      pruneKeys: async (limit: number): Promise<number> => {
        if (broken) throw new Error("broken");
        return posts.store.cleanup.pruneKeys(limit);
      },
    };
    const failing = createMaintenanceRound(deps({ store: { ...posts.store, cleanup }, log }), "me");
    await failing();
    await failing();
    expect(told).toEqual([{ task: "keys", error: "broken" }]);
    expect(await posts.store.partitions.months()).toHaveLength(4);
    broken = false;
    await failing();
    broken = true;
    await failing();
    expect(told).toHaveLength(2);
  });

  test("while the database is unavailable the maintenance waits, continues once it is back, and releases its lease at the end", async () => {
    let away = true;
    const told: string[] = [];
    const log = { ...silent, warn: (_: object, message: string) => void told.push(message) };
    const lease = {
      ...posts.store.lease,
      hold: async (holder: string, ms: number): Promise<boolean> => {
        if (away) throw new AppError("unavailable", "the database is unavailable");
        return posts.store.lease.hold(holder, ms);
      },
    };
    const maintenance = startMaintenance(deps({ store: { ...posts.store, lease }, log, everyMs: 10 }));
    await eventually(() => told.length === 1, "it says that it waits");
    away = false;
    await eventually(async () => (await posts.store.partitions.months()).length === 4, "the months are made");
    await maintenance.close();
    expect(told).toEqual(["the maintenance of posts waits for the database"]);
    expect(await posts.store.lease.hold("another", HOUR)).toBe(true);
  });
});
