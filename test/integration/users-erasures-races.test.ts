import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "@jest/globals";
import { chunked } from "../../src/kernel/concurrency.js";
import { codeOf } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import type { Loop } from "../../src/kernel/loop.js";
import { pause, SECOND } from "../../src/kernel/time.js";
import type { Db } from "../../src/platform/db/db.js";
import { maintain } from "../../src/users/maintenance.js";
import { createMaintenanceStore } from "../../src/users/maintenance.sql.js";
import { countingRows } from "../support/counted-rows.js";
import { DATABASES, type DatabaseServer, longTest } from "../support/databases.js";
import { keysNaming, rowsNaming } from "../support/erased-rows.js";
import { erasing } from "../support/erasures.js";
import { becomes } from "../support/eventually.js";
import { below, oneOf, seeded } from "../support/random.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { quickTest as test } from "../support/suite.js";
import {
  heldProcess,
  newUsersDatabase,
  settle,
  type UsersProcess,
  usersProcess,
  WRONG_LISTS,
} from "../support/users.js";

const ALWAYS = { expires_at: 0, reposts_only: false };

describe.each(DATABASES)("erasures beside other work on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;
  let others: UsersProcess;
  const loops: Loop[] = [];

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  beforeEach(async () => {
    await redis.raw.flushall();
    db = await newUsersDatabase(server);
    const wakeErasures = () => {
      for (const loop of loops) loop.wake();
    };
    const newProcess = () => usersProcess({ db, scripts: redis.scripts, wakeErasures });
    [users, others] = [newProcess(), newProcess()];
  });
  afterEach(() => Promise.all(loops.splice(0).map((loop) => loop.close())));
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  const begin = (deps: Partial<Parameters<typeof erasing>[0]> = {}): Loop => {
    const loop = erasing({ db, scripts: redis.scripts, ...deps });
    loops.push(loop);
    return loop;
  };
  const running = async (): Promise<number> =>
    (await db.query("SELECT FROM users.erasures WHERE completed_at IS NULL")).length;
  const allCompleted = (): Promise<void> =>
    becomes(async () => {
      await settle(db, users);
      expect(await running()).toBe(0);
    }, 60 * SECOND);
  const outcome = (call: Promise<unknown>): Promise<string> => call.then(() => "done", codeOf);
  const pair = (follower_id: string, following_id: string) => ({ follower_id, following_id });
  const related = (user_id: string, target_id: string) => ({ user_id, target_id, ...ALWAYS });
  const elsewhere = name === "PGlite" ? test.skip : test;

  elsewhere.each(["follow", "followMany", "block", "mute", "setProfile"] as const)(
    "a %s that began before the erasure and is committed after it is removed",
    async (method) => {
      const { process, held, release } = heldProcess(db, redis.scripts);
      const calls = {
        follow: () => process.follow(pair("a", "gone")),
        followMany: () => process.followMany({ follows: [pair("b", "c"), pair("gone", "a")] }),
        block: () => process.block(related("a", "gone")),
        mute: () => process.mute(related("gone", "a")),
        setProfile: () => process.setProfile({ user_id: "gone", display_name: "", bio: "", avatar_url: "" }),
      };
      const writing = calls[method]();
      await held;
      await users.eraseUser({ user_id: "gone", only_if_known: false });
      begin();
      await pause(SECOND / 2);
      await settle(db, users);
      release();
      await writing;
      await allCompleted();
      expect(await rowsNaming(db, ["gone"])).toEqual([]);
      expect(await db.query(WRONG_LISTS)).toEqual([]);
    },
  );

  test("whatever is first, nothing names an erased user afterwards, and all counts are right", async () => {
    const random = seeded(7);
    const rounds = Array.from({ length: name === "PGlite" ? 40 : 200 }, (_, n) => n);
    const outcomes = new Set<string>();
    const friends = Array.from({ length: 6 }, (_, n) => `friend${n}`);
    const maintenance = () => maintain({ store: createMaintenanceStore(db), log: silent });
    const drifts: unknown[] = [];
    const race = async (n: number): Promise<void> => {
      // Neighbours are erased at the same time.
      const [gone, next] = [`gone-${n}.`, `gone-${(n + 1) % rounds.length}.`];
      const one = () => oneOf(random, friends);
      const works = [
        () => users.follow(pair(gone, one())),
        () => others.follow(pair(one(), gone)),
        () => users.follow(pair(gone, next)),
        () => others.unfollow(pair(gone, one())),
        () => users.followMany({ follows: [pair(one(), gone), pair(gone, "friend0"), pair(next, gone)] }),
        () => others.block(related(one(), gone)),
        () => users.block(related(gone, one())),
        () => others.mute(related(one(), gone)),
        () => users.unblock(related(gone, one())),
        () => others.setProfile({ user_id: gone, display_name: gone, bio: "", avatar_url: "" }),
      ];
      const late = async (work: () => Promise<unknown>): Promise<void> => {
        await pause(below(random, 60));
        outcomes.add(await outcome(work()));
      };
      const erase = async () => {
        await pause(10 + below(random, 15));
        await users.eraseUser({ user_id: gone, only_if_known: false });
      };
      await Promise.all([erase(), ...works.map(late), ...works.map(late)]);
      await pause(100);
      await Promise.all(works.map(late));
    };
    begin();
    begin({ turnMs: 0 });
    for (const part of chunked(rounds, 8)) {
      await Promise.all(part.map(race));
      await settle(db, part[0] === 0 ? users : others);
      drifts.push(...(await maintenance()).drifts);
    }
    expect([outcomes.has("done"), outcomes.has("conflict"), outcomes.size]).toEqual([true, true, 2]);
    await allCompleted();
    await settle(db, users);
    expect(await rowsNaming(db, ["gone-"])).toEqual([]);
    expect(await db.query(WRONG_LISTS)).toEqual([]);
    expect(drifts).toEqual([]);
    expect(await keysNaming(redis.raw, "gone-")).toEqual([]);
  });

  longTest(name)(
    "several loops remove 10,000 followers and 10,000 followings without reading all for each of them",
    async () => {
      await db.query(
        `INSERT INTO users.followings (follower_id, following_id, version, active, changed_at)
       SELECT 'gone', 'u' || n, 1, true, 1 FROM generate_series(1, 10000) AS n
       UNION ALL SELECT 'u' || n, 'gone', 1, true, 1 FROM generate_series(1, 10000) AS n
       UNION ALL SELECT 'u' || n, 'u0', 1, true, 1 FROM generate_series(1, 10000) AS n`,
      );
      await db.query(
        `INSERT INTO users.followers (following_id, follower_id, version, active, delta, changed_at)
       SELECT following_id, follower_id, 1, true, 1, 1 FROM users.followings`,
      );
      await db.query(
        "INSERT INTO users.following_counts SELECT follower_id, count(*) FROM users.followings GROUP BY follower_id",
      );
      await db.query(
        "INSERT INTO users.follower_counts SELECT following_id, count(*), 1, 1 FROM users.followers GROUP BY following_id",
      );
      await users.readList({ list: "following", user: "u7", after: "", limit: 10 });
      let rows = 0;
      const counted = countingRows(db, ({ read, written }) => {
        rows += read + written;
      });
      await users.eraseUser({ user_id: "gone", only_if_known: false });
      begin({ db: counted });
      begin({ db: counted, turnMs: 0 });
      await allCompleted();
      // A look at all followers for each of them would read 100 million.
      expect(rows).toBeLessThan(10_000_000);
      expect(await rowsNaming(db, ["gone"])).toEqual([]);
      expect(await db.query(WRONG_LISTS)).toEqual([]);
      expect(await users.readList({ list: "following", user: "u7", after: "", limit: 10 })).toEqual({
        ...{ ids: ["u0"], total: 1 },
      });
    },
  );
});
