import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { DatedFollow } from "../../src/gen/avion/users.js";
import { silent } from "../../src/kernel/logger.js";
import { OUTBOX_MIGRATIONS } from "../../src/outbox/index.js";
import type { Db } from "../../src/platform/db/db.js";
import { migrate } from "../../src/platform/db/migrate.js";
import { USERS_MIGRATIONS } from "../../src/users/index.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { oneOf, seeded } from "../support/random.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import {
  newUsersDatabase,
  serveUsers,
  settle,
  type UsersClient,
  type UsersProcess,
  usersProcess,
} from "../support/users.js";

/** Applies the migrations that the version without relations had. */
async function migrateTo0006(db: Db): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "timeline-test-users-"));
  try {
    const own = fileURLToPath(USERS_MIGRATIONS.folder);
    for (const file of readdirSync(own).filter((one) => one < "0007")) cpSync(join(own, file), join(folder, file));
    await migrate(db, [OUTBOX_MIGRATIONS, { component: "users", folder: pathToFileURL(`${folder}/`) }], silent);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe.each(DATABASES)("dated lists on $name", ({ start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  type Method = "listFollowing" | "listFollowers";
  const whole = async (client: UsersClient, list: Method, options = {}, between = async () => {}) => {
    const found: DatedFollow[] = [];
    for (let page_token = ""; ; ) {
      const page = await client[list]({ user_id: "star", ...options, page_token });
      found.push(...page.follows);
      page_token = page.next_page_token;
      if (page_token === "") return found;
      await between();
    }
  };

  describe("of this version", () => {
    let db: Db;
    let users: UsersProcess;
    let client: UsersClient;

    beforeEach(async () => {
      await redis.raw.flushall();
      db = await newUsersDatabase(server);
      users = usersProcess({ db, scripts: redis.scripts });
      client = await serveUsers(users);
    });

    test("both lists have the time of the follow, whenever it is applied; a new follow has a new time", async () => {
      await users.follow({ follower_id: "star", following_id: "old" });
      await users.follow({ follower_id: "old", following_id: "star" });
      const earlier = "UPDATE users.followings SET changed_at = changed_at - 60000";
      await db.run(earlier);
      await db.run(
        `UPDATE public.outbox SET body = jsonb_set(body::jsonb, '{changed_at}',
           to_jsonb((body::jsonb ->> 'changed_at')::bigint - 60000))::text`,
      );
      await settle(db, users);
      const [following, followers] = [await whole(client, "listFollowing"), await whole(client, "listFollowers")];
      const since = followers[0]?.since ?? 0;
      expect([following, followers]).toEqual([
        [{ user_id: "old", since: expect.any(Number) }],
        [{ user_id: "old", since }],
      ]);
      const [other] = (await client.listFollowing({ user_id: "old" })).follows;
      expect([other?.since === since, since < Date.now() - 50_000]).toEqual([true, true]);
      await users.unfollow({ follower_id: "old", following_id: "star" });
      await settle(db, users);
      expect(await whole(client, "listFollowers")).toEqual([]);
      await users.follow({ follower_id: "old", following_id: "star" });
      await settle(db, users);
      const [again] = await whole(client, "listFollowers");
      expect([again].map((one) => [one?.user_id, (one?.since ?? 0) > since + 50_000])).toEqual([["old", true]]);
      expect((await client.listFollowing({ user_id: "old" })).follows).toEqual([
        { user_id: "star", since: again?.since },
      ]);
      await client.close();
    });

    test.each(["listFollowing", "listFollowers"] as const)(
      "%s: who stays is on exactly one page, newest first, whatever comes and goes",
      async (list) => {
        const count = 5_000;
        const [table, own, other] =
          list === "listFollowing"
            ? ["followings", "follower_id", "following_id"]
            : ["followers", "following_id", "follower_id"];
        const more = list === "listFollowers" ? ["", ", delta", ", 1"] : ["", "", ""];
        // Ten users share a time.
        await db.query(
          `INSERT INTO users.${table} (${own}, ${other}, version, active, changed_at${more[1]})
           SELECT 'star', 'u' || n, 1, n % 7 > 0, 1000 + n / 10${more[2]} FROM generate_series(1, $1::int) AS n`,
          [count],
        );
        const expected = Array.from({ length: count }, (_, n) => n + 1)
          .filter((n) => n % 7 > 0)
          .map((n) => ({ user_id: `u${n}`, since: 1_000 + Math.floor(n / 10) }))
          .sort((x, y) => y.since - x.since || (x.user_id < y.user_id ? 1 : -1));
        const first = await client[list]({ user_id: "star", page_size: 5_000 });
        expect(first.follows).toEqual(expected.slice(0, 1_000));
        expect(await whole(client, list)).toEqual(expected);
        const random = seeded(5);
        const staying = new Set(expected.map(({ user_id }) => user_id));
        let coming = 0;
        const seen = await whole(client, list, { page_size: 170 }, async () => {
          const leaving = oneOf(random, [...staying]);
          staying.delete(leaving);
          await db.query(`UPDATE users.${table} SET active = false WHERE ${own} = 'star' AND ${other} = $1`, [leaving]);
          await db.query(
            `INSERT INTO users.${table} (${own}, ${other}, version, active, changed_at${more[1]})
             VALUES ('star', $1, 1, true, $2${more[2]})`,
            [`new${coming++}`, random() < 0.5 ? 1 : 100_000],
          );
        });
        const ids = seen.map(({ user_id }) => user_id);
        expect(new Set(ids).size).toBe(ids.length);
        expect([...staying].filter((id) => !ids.includes(id))).toEqual([]);
        await client.close();
      },
      120_000,
    );
  });

  test("rows of the version before are listed by the times that they have, and its processes go on", async () => {
    await redis.raw.flushall();
    const db = await server.emptyDatabase();
    await migrateTo0006(db);
    await db.run(`
      INSERT INTO users.followings VALUES ('star', 'a', 3, true, 30), ('star', 'b', 4, true, 40), ('x', 'star', 5, false, 50);
      INSERT INTO users.following_counts VALUES ('star', 2, 0);
      INSERT INTO users.followers VALUES ('star', 'c', 6, true, 1, 60), ('star', 'd', 7, true, 1, 70);
      INSERT INTO users.profiles VALUES ('old', 'Old', '', '', 80), ('older', 'Older', '', '', 90)`);
    await migrate(db, [OUTBOX_MIGRATIONS, USERS_MIGRATIONS], silent);
    const users = usersProcess({ db, scripts: redis.scripts });
    const client = await serveUsers(users);
    // A process of the version before.
    await db.run(`
      INSERT INTO users.followers (following_id, follower_id, version, active, delta, changed_at)
      VALUES ('star', 'e', 8, true, 1, 65);
      INSERT INTO users.followings AS f (follower_id, following_id, version, active, changed_at)
      VALUES ('x', 'star', 99, true, 99) ON CONFLICT (follower_id, following_id) DO UPDATE SET active = true;
      INSERT INTO users.profiles (user_id, display_name, bio, avatar_url, updated_at) VALUES ('new', '', '', '', 100)`);
    expect(await whole(client, "listFollowing")).toEqual([
      { user_id: "b", since: 40 },
      { user_id: "a", since: 30 },
    ]);
    expect(await whole(client, "listFollowers")).toEqual([
      { user_id: "d", since: 70 },
      { user_id: "e", since: 65 },
      { user_id: "c", since: 60 },
    ]);
    expect((await client.block({ user_id: "a", target_id: "star" })).changed).toBe(true);
    expect((await whole(client, "listFollowing")).map(({ user_id }) => user_id)).toEqual(["b"]);

    const { profile } = await client.setProfile({ user_id: "old", display_name: "New" });
    expect([profile?.created_at, (profile?.updated_at ?? 0) > 80]).toEqual([80, true]);
    expect((await client.setProfile({ user_id: "old" })).profile?.created_at).toBe(80);
    const created = await client.setProfile({ user_id: "today" });
    expect(created.profile?.created_at).toBe(created.profile?.updated_at);
    const listed = (await client.listProfiles({})).profiles.map(({ user_id, created_at }) => [user_id, created_at]);
    expect(listed).toEqual([
      ["new", 100],
      ["old", 80],
      ["older", 90],
      ["today", created.profile?.created_at],
    ]);
    expect((await client.getProfile({ user_id: "older" })).profile?.created_at).toBe(90);
    await client.close();
  });
});
