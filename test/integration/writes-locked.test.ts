import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { Visibility } from "../../src/gen/avion/posts.js";
import type { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { dropCreated } from "../../src/posts/drops/events.js";
import { createDropIds } from "../../src/posts/drops/ids.js";
import { createPostsStore } from "../../src/posts/store.sql.js";
import { MIGRATIONS } from "../../src/roles/database.js";
import { CALM_LANE, createApplyEdges } from "../../src/users/edges.js";
import { createEdgeStore } from "../../src/users/edges.sql.js";
import { eventually } from "../support/eventually.js";
import { type Postgres, postgresPrograms, startPostgres } from "../support/postgres.js";
import { deliver } from "../support/users.js";

const installed = postgresPrograms() === undefined ? describe.skip : describe;

installed("writes beside a locked row, on PostgreSQL", () => {
  let server: Postgres;
  let db: Db;
  let holder: pg.Client;

  beforeAll(async () => {
    server = await startPostgres();
    db = openPostgres({ url: server.url, poolSize: 10, name: "test" }, silent);
    await migrate(db, MIGRATIONS, silent);
    holder = new pg.Client(server.url);
    await holder.connect();
  });
  afterAll(async () => {
    await holder.end();
    await db.close();
    await server.stop();
  });

  /** Holds the lock that the statement takes while `work` runs. */
  async function locked<T>(statement: string, value: string, work: () => Promise<T>): Promise<T> {
    await holder.query("BEGIN");
    try {
      await holder.query(statement, [value]);
      return await work();
    } finally {
      await holder.query("ROLLBACK");
    }
  }

  const nextId = createDropIds();
  function creation(replyTo = "") {
    const texts = { summary: "", body: "text", recipients: [] };
    const drop = {
      drop_id: nextId(Date.now()),
      user_id: "ada",
      reply_to: replyTo,
      visibility: Visibility.PUBLIC,
      ...texts,
    };
    return { drop, idempotencyKey: "", created: dropCreated(drop), replied: undefined };
  }
  const LOCK_DROP = "SELECT FROM posts.drops WHERE drop_id = $1 FOR UPDATE";
  const LOCK_COUNT = "SELECT FROM users.following_counts WHERE user_id = $1 FOR UPDATE";

  // Invariant 11.
  test("drops that share a statement with a reply to a locked drop are created; the reply follows", async () => {
    const { create } = createPostsStore(db).drops;
    const parent = creation();
    expect(await create(parent)).toBe(true);
    const reply = await locked(LOCK_DROP, parent.drop.drop_id, async () => {
      const waiting = create(creation(parent.drop.drop_id));
      const beside = Array.from({ length: 40 }, () => create(creation()));
      expect(new Set(await Promise.all(beside))).toEqual(new Set([true]));
      return { waiting };
    });
    expect(await reply.waiting).toBe(true);
  });

  test("drops created after a reply that waits alone are created beside it", async () => {
    const { create } = createPostsStore(db).drops;
    const parent = creation();
    await create(parent);
    const reply = await locked(LOCK_DROP, parent.drop.drop_id, async () => {
      const waiting = create(creation(parent.drop.drop_id));
      await new Promise(setImmediate);
      await new Promise(setImmediate);
      expect(await create(creation())).toBe(true);
      return { waiting };
    });
    expect(await reply.waiting).toBe(true);
  });

  // Invariant 11.
  test("a reply to a drop that stays locked is refused as unavailable, and nothing of it is kept", async () => {
    const { create, byIds } = createPostsStore(db).drops;
    const parent = creation();
    await create(parent);
    const reply = creation(parent.drop.drop_id);
    await locked(LOCK_DROP, parent.drop.drop_id, async () => {
      await expect(create(reply)).rejects.toMatchObject({ code: "unavailable" } satisfies Partial<AppError>);
    });
    expect(await byIds([reply.drop.drop_id])).toEqual([]);
    expect(await create(reply)).toBe(true);
  });

  test("follows that share a statement with one of a locked follower are set; that one follows", async () => {
    const { setFollowing } = createEdgeStore(db);
    const follow = (follower_id: string, following_id: string) =>
      setFollowing({ follower_id, following_id, wanted: true, most: 100 });
    await follow("slow", "first");
    const slow = await locked(LOCK_COUNT, "slow", async () => {
      const waiting = follow("slow", "second");
      const beside = Array.from({ length: 40 }, (_, n) => follow(`quick${n}`, "star"));
      expect((await Promise.all(beside)).every(({ changed }) => changed)).toBe(true);
      return { waiting };
    });
    expect(await slow.waiting).toMatchObject({ changed: true, version: expect.any(Number) });
    const [row] = await db.query<{ following: number }>(
      "SELECT following FROM users.following_counts WHERE user_id = 'slow'",
    );
    expect(row?.following).toBe(2);
  });

  // Invariant 11.
  test("edges of others are listed by two processes while the count of a user whom all follow is locked", async () => {
    const other = openPostgres({ url: server.url, poolSize: 10, name: "test" }, silent);
    const nothing = () => undefined;
    const handlers = [db, other].map((of) => {
      return createApplyEdges({ apply: createEdgeStore(of).apply, wakeRelay: nothing }, CALM_LANE);
    });
    const edge = (follower_id: string, following_id: string) => ({
      ...{ id: 0, key: "", messageId: "", createdAt: 0, subject: "edges.calm.x" },
      body: JSON.stringify({ follower_id, following_id, version: 1, following: true }),
    });
    const totals = async () => {
      const rows = await db.query<{ user: string; followers: number }>(
        `SELECT user_id AS "user", followers FROM users.follower_counts WHERE user_id LIKE 'list-%' ORDER BY 1`,
      );
      return rows.map(({ user, followers }) => `${user} ${followers}`).join();
    };
    await deliver(handlers, [edge("first", "list-idol")]);
    const toIdol = Array.from({ length: 40 }, (_, n) => edge(`fan${n}`, "list-idol"));
    const toOthers = Array.from({ length: 80 }, (_, n) => edge(`fan${n}`, `list-${n % 8}`));
    const others = Array.from({ length: 8 }, (_, n) => `list-${n} 10`);
    const delivered = await locked(
      "SELECT FROM users.follower_counts WHERE user_id = $1 FOR UPDATE",
      "list-idol",
      async () => {
        const waiting = Promise.allSettled(
          [...toIdol, ...toOthers].map((one, n) => deliver([handlers[n % 2] as (typeof handlers)[0]], [one])),
        );
        const listed = async () => (await totals()) === [...others, "list-idol 1"].join() || totals();
        await eventually(listed, "the followers of others are listed");
        return { waiting };
      },
    );
    await delivered.waiting;
    // As the stream delivers again what has waited for too long.
    await deliver(handlers, toIdol);
    expect(await totals()).toBe([...others, "list-idol 41"].join());
    await other.close();
  });
});
