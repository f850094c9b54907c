import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { chunked } from "../../src/kernel/concurrency.js";
import { codeOf } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import type { Db } from "../../src/platform/db/db.js";
import { startEndingMutes } from "../../src/users/maintenance.js";
import { createRelationStore } from "../../src/users/relations.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { below, seeded } from "../support/random.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { heldProcess, newUsersDatabase, settle, type UsersProcess, usersProcess } from "../support/users.js";

const turns = async (count: number): Promise<void> => {
  for (let n = 0; n < count; n++) await new Promise(setImmediate);
};

describe.each(DATABASES)("blocks and mutes at the same time as other changes, on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;
  let others: UsersProcess;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  beforeEach(async () => {
    await redis.raw.flushall();
    db = await newUsersDatabase(server);
    [users, others] = [usersProcess({ db, scripts: redis.scripts }), usersProcess({ db, scripts: redis.scripts })];
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  const ab = { user_id: "a", target_id: "b" };
  const pair = (follower_id: string, following_id: string) => ({ follower_id, following_id });
  const followings = async () =>
    (
      await db.query<{ pair: string }>(
        "SELECT follower_id || '>' || following_id AS pair FROM users.followings WHERE active ORDER BY 1",
      )
    ).map((row) => row.pair);
  const outcome = (call: Promise<unknown>): Promise<string> => call.then(() => "done", codeOf);

  // Embedded, statements run one after another.
  const elsewhere = name === "PGlite" ? test.skip : test;
  const blocked = (): Promise<void> =>
    eventually(async () => {
      const waiting = await db.query(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'`,
      );
      return waiting.length === 1;
    }, "the other transaction waits");

  elsewhere.each(["follow", "followMany"] as const)(
    "a block waits for a %s that came first, and ends it",
    async (method) => {
      const { process, held, release } = heldProcess(db, redis.scripts);
      const following =
        method === "follow" ? process.follow(pair("b", "a")) : process.followMany({ follows: [pair("b", "a")] });
      await held;
      const blocking = users.block(ab);
      await blocked();
      release();
      expect([await following, await blocking]).toMatchObject([
        { changed: method === "follow" || 1 },
        { changed: true },
      ]);
      expect(await followings()).toEqual([]);
      const subjects = (await settle(db, users)).map(({ subject }) => subject);
      expect(subjects.filter((subject) => subject.startsWith("graph.")).sort()).toEqual([
        "graph.blocked",
        "graph.followed",
        "graph.unfollowed",
      ]);
    },
  );

  elsewhere("a follow waits for a block that came first, and is refused; those beside it are set", async () => {
    const { process, held, release } = heldProcess(db, redis.scripts);
    const blocking = process.block(ab);
    await held;
    const follows = [pair("x", "y"), pair("a", "b"), pair("y", "x")].map((one) => outcome(users.follow(one)));
    const many = outcome(others.followMany({ follows: [pair("c", "d"), pair("b", "a")] }));
    await eventually(async () => (await followings()).join() === "x>y,y>x", "the others are set");
    release();
    expect((await blocking).changed).toBe(true);
    expect(await Promise.all([...follows, many])).toEqual(["done", "conflict", "done", "conflict"]);
    expect(await followings()).toEqual(["x>y", "y>x"]);
  });

  elsewhere("a follow is refused until the end of a block is committed", async () => {
    await users.block(ab);
    const { process, held, release } = heldProcess(db, redis.scripts);
    const unblocking = process.unblock(ab);
    await held;
    expect(await outcome(users.follow(pair("a", "b")))).toBe("conflict");
    release();
    await unblocking;
    expect(await outcome(users.follow(pair("a", "b")))).toBe("done");
  });

  test("whatever is first, no follow stands beside a block, and both lists and counts agree", async () => {
    const random = seeded(42);
    const rounds = Array.from({ length: name === "PGlite" ? 40 : 400 }, (_, n) => n);
    const outcomes = new Set<string>();
    const race = async (n: number): Promise<void> => {
      const [a, b, c] = [`a${n}`, `b${n}`, `c${n}`];
      const late = Array.from({ length: 4 }, () => below(random, 6));
      const outcomeAfter = async <T>(place: number, work: () => Promise<T>): Promise<string> => {
        await turns(late[place] as number);
        return outcome(work());
      };
      const block = () => others.block({ user_id: a, target_id: b });
      const [one, two, many, blocked] = await Promise.all([
        outcomeAfter(0, () => users.follow(pair(a, b))),
        outcomeAfter(1, () => users.follow(pair(b, a))),
        outcomeAfter(2, () => others.followMany({ follows: [pair(a, c), pair(a, b), pair(b, a)] })),
        outcomeAfter(3, block),
      ]);
      expect(blocked).toBe("done");
      for (const found of [one, two, many]) outcomes.add(found);
      expect(await db.query("SELECT FROM users.followings WHERE follower_id = $1 AND active", [a])).toHaveLength(
        many === "done" ? 1 : 0,
      );
      expect(await db.query("SELECT FROM users.followings WHERE follower_id = $1 AND active", [b])).toHaveLength(0);
    };
    for (const part of chunked(rounds, 8)) await Promise.all(part.map(race));
    expect(outcomes).toEqual(new Set(["done", "conflict"]));
    await settle(db, users);
    const wrong = `
      SELECT FROM users.followings f FULL JOIN users.followers g USING (follower_id, following_id)
      WHERE coalesce(f.active, false) <> coalesce(g.active, false)
      UNION ALL SELECT FROM users.following_counts c
      WHERE following <> (SELECT count(*) FROM users.followings f WHERE f.follower_id = c.user_id AND f.active)`;
    expect(await db.query(wrong)).toEqual([]);
  });

  test("of many equal changes at once one changes the relation", async () => {
    for (let round = 0; round < 5; round++)
      for (const change of ["block", "unblock", "mute", "unmute"] as const) {
        const some = Array.from({ length: 12 }, (_, n) => (n % 2 ? users : others)[change]({ ...ab, ...ALWAYS }));
        const answers = await Promise.all(some);
        expect(answers.filter(({ changed }) => changed)).toHaveLength(1);
        expect(new Set(answers.map(({ version }) => version)).size).toBe(1);
      }
    expect(await settle(db, users)).toHaveLength(20);
  });

  test("two users who block and unblock each other and a third do so without an end", async () => {
    const random = seeded(3);
    const names = ["a", "b", "c"];
    const act = async (process: UsersProcess): Promise<void> => {
      for (let n = 0; n < 20; n++) {
        const [user_id, target_id] = [below(random, 3), 1 + below(random, 2)].map((at, _, [own = 0]) =>
          String(names[at === own ? at : (own + at) % 3]),
        ) as [string, string];
        if (user_id === target_id) continue;
        if (random() < 0.5) await process.block({ user_id, target_id });
        else await process.unblock({ user_id, target_id });
        await outcome(process.follow(pair(user_id, target_id)));
      }
    };
    await Promise.all([users, others, users, others].map(act));
    const beside = `
      SELECT FROM users.followings f JOIN users.relations r
        ON (r.user_id, r.target_id) IN ((f.follower_id, f.following_id), (f.following_id, f.follower_id))
      WHERE f.active AND r.active`;
    expect(await db.query(beside)).toEqual([]);
    const marked = `
      SELECT FROM users.followings f WHERE (f.blocking, f.blocked_by) <> (
        EXISTS (SELECT FROM users.relations WHERE (user_id, target_id) = (f.follower_id, f.following_id) AND active),
        EXISTS (SELECT FROM users.relations WHERE (user_id, target_id) = (f.following_id, f.follower_id) AND active)
      )`;
    expect(await db.query(marked)).toEqual([]);
  });

  test("each mute that ended while no process ran is ended once, by several processes", async () => {
    const muters = Array.from({ length: 1_200 }, (_, n) => `u${n}`);
    await db.query(
      `INSERT INTO users.relations
       SELECT u, 'loud', 2, 1, true, CASE WHEN u = 'u0' THEN 0 ELSE 5 END, false, 1, 1 FROM unnest($1::text[]) AS u`,
      [muters],
    );
    let woken = 0;
    const { endMutes } = createRelationStore(db);
    const loops = [1, 2, 3].map(() => startEndingMutes({ endMutes, wakeRelay: () => void woken++, log: silent }));
    const active = async () => (await db.query("SELECT FROM users.relations WHERE active")).length;
    await eventually(async () => (await active()) === 1, "all are ended");
    await Promise.all(loops.map((loop) => loop.close()));
    const events = await settle(db, users);
    expect(events.every(({ subject }) => subject === "graph.unmuted")).toBe(true);
    expect(new Set(events.map(({ key }) => key)).size).toBe(1_199);
    expect([events.length, woken >= 3]).toEqual([1_199, true]);
  });
});

/** Neither an end nor only what is reposted. */
const ALWAYS = { expires_at: 0, reposts_only: false };
