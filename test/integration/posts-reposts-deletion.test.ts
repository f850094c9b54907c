import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { monthOf } from "../../src/posts/drops/ids.js";
import { createPartitionStore } from "../../src/posts/drops/partitions.sql.js";
import { POSTS_MIGRATIONS } from "../../src/posts/index.js";
import { createMaintenanceRound } from "../../src/posts/maintenance.js";
import { describePosts } from "../support/describe-posts.js";
import { eventually } from "../support/eventually.js";
import { type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { repostsIn, storeReposts } from "../support/reposts.js";

/** PGlite deletes 10,000 reposts in some seconds, and takes more than the usual ten on a busy machine. */
const LONG_MS = 60_000;
const NONE = { shares: [], live: [], mistold: [] };

/** An original of Ada's that so many others have shared. */
async function shared(posts: PostsHarness, reposts: number): Promise<string> {
  const original = await post(posts);
  const [stored] = await posts.store.drops.byIds([original]);
  await storeReposts(posts, stored as NonNullable<typeof stored>, reposts);
  return original;
}

const round = (posts: PostsHarness): Promise<void> =>
  createMaintenanceRound({ store: posts.store, now: Date.now, retentionDays: 0, log: silent }, "me")();

describePosts("deleting what has reposts", { emptied: true }, (posts, { name, newDatabase }) => {
  // Invariant 4.
  test("reposts go with their original, in batches, each with its event", async () => {
    const original = await shared(posts, 2_500);
    const other = await shared(posts, 3);
    await posts.written();
    const batches: number[] = [];
    const { removeOf } = posts.store.reposts;
    const reposts: typeof posts.store.reposts = {
      ...posts.store.reposts,
      removeOf: async (...asked) => {
        batches.push(await removeOf(...asked));
        return batches.at(-1) as number;
      },
    };
    const watched = await startPosts(posts.db, { store: { ...posts.store, reposts } });
    try {
      const { tombstone } = await watched.call.deleteDrop({ drop_id: original, user_id: "ada" });
      expect(tombstone?.id).toBe(original);
    } finally {
      await watched.stop();
    }
    expect(Math.max(...batches)).toBe(1_000);
    const events = await posts.written();
    expect(events).toHaveLength(2_501);
    expect(new Set(events.map(({ subject }) => subject))).toEqual(new Set(["drops.deleted"]));
    const { live, mistold } = await repostsIn(posts);
    expect([live.length, mistold]).toEqual([3, []]);
    expect(live.every((one) => one.startsWith(other))).toBe(true);
  });

  test("what is left past the first 10,000, or by a process that was killed, the maintenance deletes", async () => {
    const originals = [await shared(posts, 10_400), await shared(posts, 2_500)] as const;
    await posts.call.deleteDrop({ drop_id: originals[0], user_id: "ada" }, LONG_MS);
    expect((await repostsIn(posts)).live).toHaveLength(400 + 2_500);
    // As a process leaves it that was killed right after the tombstone.
    await posts.db.query("UPDATE posts.drops SET deleted_at = 1 WHERE drop_id = $1", [originals[1]]);
    await round(posts);
    expect(await repostsIn(posts)).toEqual(NONE);
    expect(await posts.db.query("SELECT FROM posts.drops WHERE deleted_at IS NOT NULL AND NOT purged")).toEqual([]);
    expect(await posts.db.query("SELECT FROM posts.reactions")).toEqual([]);
  });

  test("a deletion that broke off midway is continued by the maintenance, and by the deletion when it comes again", async () => {
    const originals = [await shared(posts, 4_000), await shared(posts, 4_000)];
    let left = 3;
    const reposts: typeof posts.store.reposts = {
      ...posts.store.reposts,
      removeOf: async (...asked) => {
        if (left-- === 0) throw new AppError("unavailable", "the process has died");
        return posts.store.reposts.removeOf(...asked);
      },
    };
    const failing = await startPosts(posts.db, { store: { ...posts.store, reposts } });
    try {
      for (const drop_id of originals) {
        left = 3;
        expect(await refusal(failing.call.deleteDrop({ drop_id, user_id: "ada" }))).toMatch(/^UNAVAILABLE/);
      }
    } finally {
      await failing.stop();
    }
    expect((await repostsIn(posts)).live).toHaveLength(2_000);
    await posts.call.deleteDrop({ drop_id: originals[0] as string, user_id: "ada" });
    expect((await repostsIn(posts)).live).toHaveLength(1_000);
    await Promise.all([round(posts), posts.store.cleanup.purgeTombstones(300)]);
    await round(posts);
    expect(await repostsIn(posts)).toEqual(NONE);
  });

  test("the events of many deleted reposts do not hold up the drops of others, nor those of the author", async () => {
    const original = await shared(posts, 3_000);
    await posts.db.query("UPDATE public.outbox SET published_at = 1");
    await posts.call.deleteDrop({ drop_id: original, user_id: "ada" });
    const later = [await post(posts), await post(posts, { user_id: "zoe" })];
    const claimed = await createOutboxStore(posts.db, "posts").claim(500, 10_000);
    expect(claimed).toHaveLength(500);
    expect(claimed.map(({ key }) => key)).toEqual(expect.arrayContaining(later));
  });

  test("shares of one user at once make one repost", async () => {
    for (let turn = 0; turn < 6; turn++) {
      const drop_id = await post(posts);
      const calls = Array.from({ length: 10 }, () => posts.call.shareDrop({ drop_id, user_id: "bob" }));
      const answers = await Promise.all(calls);
      expect(answers.filter(({ changed }) => changed)).toHaveLength(1);
      expect(new Set(answers.map(({ repost_id }) => repost_id)).size).toBe(1);
      const { shares, live, mistold } = await repostsIn(posts);
      expect(live).toHaveLength(turn + 1);
      expect([shares, mistold]).toEqual([live, []]);
    }
  });

  test("unshares and deletions of one repost at once withdraw one share", async () => {
    for (let turn = 0; turn < 6; turn++) {
      const bob = { drop_id: await post(posts), user_id: "bob" };
      const { repost_id } = await posts.call.shareDrop(bob);
      await posts.written();
      const deletions = Array.from({ length: 3 }, () => posts.call.deleteDrop({ ...bob, drop_id: repost_id }));
      const unshares = Array.from({ length: 7 }, () => posts.call.unshareDrop(bob));
      await Promise.all(deletions);
      const changed = (await Promise.all(unshares)).filter((one) => one.changed);
      expect(changed.length).toBeLessThanOrEqual(1);
      expect((await posts.written()).map(({ subject }) => subject).sort()).toEqual([
        "drops.deleted",
        "engagement.changed",
      ]);
      expect(await repostsIn(posts)).toEqual(NONE);
    }
  });

  test("shares beside unshares, deletions of reposts and of the original leave shares and reposts that agree", async () => {
    for (let turn = 0; turn < 10; turn++) {
      const drop_id = await post(posts);
      const users = ["bob", "eve", "fay"];
      const begun = await Promise.all(users.map((user_id) => posts.call.shareDrop({ drop_id, user_id })));
      const racing = users.flatMap((user_id, n) => [
        posts.call.unshareDrop({ drop_id, user_id }),
        posts.call.deleteDrop({ drop_id: begun[n]?.repost_id as string, user_id }),
        posts.call.shareDrop({ drop_id, user_id }),
        posts.call.unshareDrop({ drop_id: begun[0]?.repost_id as string, user_id }),
        posts.call.shareDrop({ drop_id, user_id }),
      ]);
      const isDeleted = turn % 2 === 0;
      const outcomes = await Promise.allSettled([
        ...racing,
        ...(isDeleted ? [posts.call.deleteDrop({ drop_id, user_id: "ada" })] : []),
      ]);
      const { shares, live, mistold } = await repostsIn(posts);
      expect([shares, mistold]).toEqual([live, []]);
      if (isDeleted) expect(live.filter((one) => one.startsWith(drop_id))).toEqual([]);
      else expect(outcomes.filter(({ status }) => status === "rejected")).toEqual([]);
      await posts.countAll();
      const [count] = (await posts.call.getCounts({ drop_ids: [drop_id] })).counts;
      expect(count?.shares).toBe(live.filter((one) => one.startsWith(drop_id)).length);
    }
  });

  const onServer = name === "PGlite" ? test.skip : test;

  const waiting = (statements: number, what: string): Promise<void> =>
    eventually(async () => {
      const rows = await posts.db.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`,
      );
      return rows.length === statements || `${rows.length} wait`;
    }, what);

  onServer("a deletion waits for a share that has begun, and deletes its repost", async () => {
    const drop_id = await post(posts);
    const bob = { drop_id, user_id: "bob" };
    await posts.call.shareDrop(bob);
    await posts.call.unshareDrop(bob);
    const racing = await posts.db.transaction(async (tx) => {
      await tx.query("SELECT FROM posts.reactions WHERE drop_id = $1 FOR UPDATE", [drop_id]);
      const sharing = posts.call.shareDrop(bob);
      await waiting(1, "the share waits for its row");
      const deletion = posts.call.deleteDrop({ drop_id, user_id: "ada" });
      await waiting(2, "the deletion waits for the share");
      return [sharing, deletion] as const;
    });
    const [{ changed, repost_id }] = await Promise.all(racing);
    expect(changed).toBe(true);
    expect((await posts.call.getDrop({ drop_id: repost_id })).tombstone?.id).toBe(repost_id);
    expect(await repostsIn(posts)).toEqual(NONE);
  });

  onServer(
    "of an unshare and a deletion of the repost that meet, one withdraws the share, and neither holds the repost",
    async () => {
      const drop_id = await post(posts);
      const bob = { drop_id, user_id: "bob" };
      const { repost_id } = await posts.call.shareDrop(bob);
      await posts.written();
      const racing = await posts.db.transaction(async (tx) => {
        await tx.query("SELECT FROM posts.reactions WHERE drop_id = $1 FOR UPDATE", [drop_id]);
        const calls = [posts.call.unshareDrop(bob), posts.call.deleteDrop({ ...bob, drop_id: repost_id })] as const;
        await waiting(2, "both wait for the share");
        await tx.query("SELECT FROM posts.drops WHERE drop_id = $1 FOR UPDATE NOWAIT", [repost_id]);
        return calls;
      });
      await Promise.all(racing);
      expect((await posts.written()).map(({ subject }) => subject).sort()).toEqual([
        "drops.deleted",
        "engagement.changed",
      ]);
      expect(await repostsIn(posts)).toEqual(NONE);
    },
  );

  test("shares made before reposts existed stay counts, until they are shared again or withdrawn", async () => {
    const db = await newDatabase();
    const folder = `${await mkdtemp(join(tmpdir(), "posts-migrations-"))}/`;
    const files = ["posts", "page_secret", "visibility", "retention", "drops_of_deleted_actors"];
    for (const file of files.map((title, n) => `000${n + 1}_${title}.sql`))
      await copyFile(new URL(file, POSTS_MIGRATIONS.folder), join(folder, file));
    const earlier = { component: "posts", folder: pathToFileURL(folder) };
    await migrate(db, [OUTBOX_MIGRATIONS, earlier], silent);
    await rm(folder, { recursive: true });
    await createPartitionStore(db).make(monthOf(Date.now()));
    const insertDrop = (id: string) =>
      db.query(
        `INSERT INTO posts.drops (drop_id, user_id, reply_to, summary, body, visibility, recipients, updated_at, changed_at)
         VALUES ($1, 'ada', NULL, '', 'old', 1, '{}', 0, 0)`,
        [id],
      );
    // The statements of the version before: they name none of the new columns.
    const oldShare = (id: string, user: string) =>
      db.query(
        `INSERT INTO posts.reactions AS r (drop_id, kind, actor_id, active, version, changed_at) VALUES ($1, 'share', $2, true, 1, 0)
         ON CONFLICT (drop_id, kind, actor_id) DO UPDATE SET active = true, version = r.version + 1 WHERE NOT r.active`,
        [id, user],
      );
    const oldUnshare = (id: string, user: string) =>
      db.query(
        "UPDATE posts.reactions SET active = false, version = version + 1 WHERE drop_id = $1 AND actor_id = $2 AND active",
        [id, user],
      );
    const id = v7();
    await insertDrop(id);
    for (const user of ["bob", "eve"]) await oldShare(id, user);
    const upgraded = await startPosts(db);
    try {
      await upgraded.countAll();
      const shares = async () => (await upgraded.call.getCounts({ drop_ids: [id] })).counts[0]?.shares;
      const bob = { drop_id: id, user_id: "bob" };
      expect([await shares(), (await repostsIn(upgraded)).live]).toEqual([2, []]);
      expect(await upgraded.call.unshareDrop({ drop_id: id, user_id: "eve" })).toEqual({ changed: true });
      const first = await upgraded.call.shareDrop(bob);
      expect(first).toEqual({ changed: false, repost_id: expect.stringMatching(/^.{36}$/) });
      expect(await upgraded.call.shareDrop(bob)).toEqual(first);
      await upgraded.countAll();
      expect(await shares()).toBe(1);
      const agree = async () => {
        const { shares, live, mistold } = await repostsIn(upgraded);
        expect([shares, mistold]).toEqual([live, []]);
        return live.length;
      };
      expect(await agree()).toBe(1);

      // A process of the version before withdraws the share of a repost: the next share finds the repost again.
      await oldUnshare(id, "bob");
      expect(await upgraded.call.shareDrop(bob)).toEqual({ ...first, changed: true });
      await oldUnshare(id, "bob");
      expect(await upgraded.call.unshareDrop(bob)).toEqual({ changed: false });
      expect(await agree()).toBe(0);
      // It shares again, without a repost.
      await oldShare(id, "bob");
      const second = await upgraded.call.shareDrop(bob);
      expect([second.changed, second.repost_id === first.repost_id]).toEqual([false, false]);
      expect(await agree()).toBe(1);
      // It deletes an original, and purges it, without its reposts: the deletion deletes them when it comes again.
      await db.query("UPDATE posts.drops SET deleted_at = 1, purged = true WHERE drop_id = $1", [id]);
      await upgraded.call.deleteDrop({ drop_id: id, user_id: "ada" });
      expect((await repostsIn(upgraded)).live).toEqual([]);
      await insertDrop(v7());
      expect((await upgraded.call.getDropsByUserId({ user_id: "ada" })).drops).toMatchObject([{ repost_of: "" }]);
    } finally {
      await upgraded.stop();
    }
  });
});
