import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { silent } from "../../src/kernel/logger.js";
import { createPageTokens } from "../../src/kernel/paging.js";
import { DAY } from "../../src/kernel/time.js";
import type { Db } from "../../src/platform/db/db.js";
import { startUsers } from "../../src/users/index.js";
import { KEPT_MS, maintain, startMaintenance } from "../../src/users/maintenance.js";
import { createMaintenanceStore } from "../../src/users/maintenance.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { erasedHere } from "../support/erasures.js";
import { eventually } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { redisStateOn } from "../support/state.js";
import { newUsersDatabase, settle, type UsersProcess, usersProcess } from "../support/users.js";

const ALWAYS = { expires_at: 0, reposts_only: false };

describe.each(DATABASES)("the maintenance of the follow graph on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
    db = await newUsersDatabase(server);
    users = usersProcess({ db, scripts: redis.scripts });
  });
  beforeEach(async () => {
    await db.run("TRUNCATE users.followings, users.following_counts, users.followers, users.follower_counts");
    await db.run("TRUNCATE users.relations");
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  const keeping = () => ({ store: createMaintenanceStore(db), log: silent });
  const graph = async (): Promise<string[]> => {
    for (const follower_id of ["a", "b", "c"]) await users.follow({ follower_id, following_id: "star" });
    const { version } = await users.unfollow({ follower_id: "b", following_id: "star" });
    await users.unfollow({ follower_id: "c", following_id: "star" });
    await settle(db, users);
    return [String(version)];
  };
  const rows = async (table: string): Promise<string[]> =>
    (await db.query<{ follower: string }>(`SELECT follower_id AS follower FROM users.${table} ORDER BY 1`)).map(
      ({ follower }) => follower,
    );

  test("inactive edges are removed after their time, others stay, and versions keep rising", async () => {
    const [before] = await graph();
    const age = (table: string, ms: number) =>
      db.query(`UPDATE users.${table} SET changed_at = changed_at - $1::bigint WHERE follower_id <> 'c'`, [ms]);
    expect(await maintain(keeping())).toEqual({ pruned: 0, drifts: [] });
    await age("followings", KEPT_MS.following + DAY);
    await age("followers", KEPT_MS.followers - DAY);
    expect(await maintain(keeping())).toEqual({ pruned: 1, drifts: [] });
    expect([await rows("followings"), await rows("followers")]).toEqual([
      ["a", "c"],
      ["a", "b", "c"],
    ]);
    await age("followers", 2 * DAY);
    expect((await maintain(keeping())).pruned).toBe(1);
    expect(await rows("followers")).toEqual(["a", "c"]);
    const again = await users.follow({ follower_id: "b", following_id: "star" });
    expect([again.changed, again.version > Number(before)]).toEqual([true, true]);
    await settle(db, users);
    expect(await users.readList({ list: "followers", user: "star", after: "", limit: 5 })).toEqual({
      ids: ["a", "b"],
      total: 2,
    });
  });

  test("inactive relations are removed after their time; an edge stays for as long as a block", async () => {
    const ab = { user_id: "a", target_id: "b" };
    await users.block(ab);
    const unblocked = await users.unblock(ab);
    await users.mute({ ...ab, ...ALWAYS });
    await users.block({ user_id: "c", target_id: "d" });
    const age = () =>
      db.run(`
        UPDATE users.followings SET changed_at = changed_at - ${KEPT_MS.following + DAY};
        UPDATE users.relations SET changed_at = changed_at - ${KEPT_MS.relations + DAY}`);
    expect((await maintain(keeping())).pruned).toBe(0);
    await age();
    // The two edges and the block of the first pair.
    expect((await maintain(keeping())).pruned).toBe(3);
    expect(await rows("followings")).toEqual(["c", "d"]);
    const left = await db.query("SELECT user_id, kind, active FROM users.relations ORDER BY 1");
    expect(left).toEqual([
      { user_id: "a", kind: 2, active: true },
      { user_id: "c", kind: 1, active: true },
    ]);
    await expect(users.follow({ follower_id: "d", following_id: "c" })).rejects.toMatchObject({ code: "conflict" });
    const again = await users.block(ab);
    expect([again.changed, again.version > unblocked.version]).toEqual([true, true]);
    await users.unblock({ user_id: "c", target_id: "d" });
    expect((await maintain(keeping())).pruned).toBe(0);
    await age();
    expect((await maintain(keeping())).pruned).toBe(3);
    expect(await rows("followings")).toEqual(["a", "b"]);
  });

  test("the service ends mutes by itself, and wakes the relay of their events", async () => {
    await users.mute({ user_id: "a", target_id: "b", expires_at: Date.now() + DAY, reposts_only: false });
    // It ended while no process ran.
    await db.run("UPDATE users.relations SET expires_at = 1; TRUNCATE public.outbox");
    const woken: string[] = [];
    const service = startUsers({
      ...{ db, tokens: createPageTokens("a secret of tests"), readsAtOnce: 2, log: silent },
      config: { limitFollows: undefined, maxFollowing: 10, maxRelations: 10 },
      state: { ...redisStateOn(redis.scripts), erased: erasedHere() },
      wakeRelay: (source) => void woken.push(source),
    });
    await eventually(() => woken.length > 0, "the relay is woken");
    await service.close();
    expect(woken).toEqual(["users"]);
    expect((await settle(db, users)).map(({ subject, key }) => [subject, key])).toEqual([
      ["graph.unmuted", "mute:a:b"],
    ]);
  });

  test("more than one batch is removed in a round", async () => {
    await db.query(
      `INSERT INTO users.followings SELECT 'many', 'x' || n, 1, false, 1 FROM generate_series(1, 2500) AS n`,
    );
    expect((await maintain(keeping())).pruned).toBe(2_500);
  });

  test("counts that differ from their rows are reported and corrected", async () => {
    await graph();
    await db.run("UPDATE users.follower_counts SET followers = 7; UPDATE users.following_counts SET following = 9");
    const { drifts } = await maintain(keeping());
    expect([...drifts].sort((x, y) => (x.user < y.user ? -1 : 1))).toEqual([
      { list: "following", user: "a", counted: 9, rows: 1 },
      { list: "following", user: "b", counted: 9, rows: 0 },
      { list: "following", user: "c", counted: 9, rows: 0 },
      { list: "followers", user: "star", counted: 7, rows: 1 },
    ]);
    expect(await maintain(keeping())).toEqual({ pruned: 0, drifts: [] });
  });

  const long = async (): Promise<void> => {
    await db.run(
      "INSERT INTO users.followers SELECT 'star', 'f' || n, 1, n % 5 > 0, 1, 1 FROM generate_series(1, 250) AS n",
    );
    await db.run("INSERT INTO users.follower_counts VALUES ('star', 7, 0, 1)");
  };
  const starCount = async (): Promise<number | undefined> =>
    (await db.query<{ followers: number }>("SELECT followers FROM users.follower_counts"))[0]?.followers;

  test("inactive edges are not counted", async () => {
    await long();
    expect((await maintain(keeping())).drifts).toEqual([{ list: "followers", user: "star", counted: 7, rows: 200 }]);
    expect((await maintain(keeping())).drifts).toEqual([]);
    expect(await starCount()).toBe(200);
  });

  test("it runs again and again until it is closed", async () => {
    await graph();
    await db.run("UPDATE users.follower_counts SET followers = 7");
    const maintenance = startMaintenance(keeping(), 10);
    const counted = () => db.query<{ followers: number }>("SELECT followers FROM users.follower_counts");
    await eventually(async () => (await counted())[0]?.followers === 1, "the count is right again");
    await maintenance.close();
    await db.run("UPDATE users.follower_counts SET followers = 7");
    expect((await counted())[0]?.followers).toBe(7);
  });

  // Embedded, everything is one session, and a lock is never somebody else's.
  const elsewhere = name === "PGlite" ? test.skip : test;
  const waits = (): Promise<void> =>
    eventually(async () => {
      const waiting = await db.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`,
      );
      return waiting.length === 1;
    }, "the correction waits");

  elsewhere("a change of a list that commits after its rows were counted is kept by the correction", async () => {
    await long();
    const maintained = await db.transaction(async ({ query }) => {
      await query("INSERT INTO users.followers VALUES ('star', 'late', 1, true, 1, 1)");
      await query("UPDATE users.follower_counts SET followers = followers + 1");
      const correcting = maintain(keeping());
      await waits();
      return { correcting };
    });
    expect((await maintained.correcting).drifts).toMatchObject([{ counted: 7, rows: 200 }]);
    expect(await starCount()).toBe(201);
    expect((await maintain(keeping())).drifts).toEqual([]);
  });

  elsewhere("a count that another process corrects meanwhile is left alone", async () => {
    await long();
    const maintained = await db.transaction(async ({ query }) => {
      await query("UPDATE users.follower_counts SET followers = followers + 193, corrections = corrections + 1");
      const correcting = maintain(keeping());
      await waits();
      return { correcting };
    });
    expect((await maintained.correcting).drifts).toEqual([]);
    expect(await starCount()).toBe(200);
  });

  elsewhere("changes of a list beside the maintenance leave the count right", async () => {
    await long();
    await users.follow({ follower_id: "late", following_id: "star" });
    await settle(db, users);
    const [{ drifts }] = await Promise.all([
      maintain(keeping()),
      (async () => {
        for (let n = 0; n < 20; n++) await users.follow({ follower_id: `late${n}`, following_id: "star" });
        await settle(db, users);
      })(),
    ]);
    expect(drifts).toHaveLength(1);
    expect(await starCount()).toBe(221);
    expect((await maintain(keeping())).drifts).toEqual([]);
  });

  elsewhere("a step that another process runs is left to it", async () => {
    await db.query("INSERT INTO users.followings VALUES ('a', 'b', 1, false, 1)");
    await db.transaction(async ({ query }) => {
      await query("SELECT pg_advisory_xact_lock($1)", [0x7573657273]);
      expect((await maintain(keeping())).pruned).toBe(0);
    });
    expect((await maintain(keeping())).pruned).toBe(1);
  });

  test("a failure is logged once, however often it is tried again", async () => {
    const warned: string[] = [];
    let tried = 0;
    const prune = async () => {
      tried++;
      throw new Error("permission denied for table followings");
    };
    const log = { ...silent, warn: (_fields: object, message: string): void => void warned.push(message) };
    const maintenance = startMaintenance({ ...keeping(), store: { ...createMaintenanceStore(db), prune }, log }, 1);
    await eventually(() => tried > 2, "three rounds failed");
    await maintenance.close();
    expect(warned).toEqual(["the maintenance of the follow graph failed; it is tried again"]);
  });
});
