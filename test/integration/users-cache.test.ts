import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { AppError } from "../../src/kernel/errors.js";
import type { Db } from "../../src/platform/db/db.js";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import type { ListName } from "../../src/state/caches/user-lists.redis.js";
import { usersKey } from "../../src/state/keys.js";
import type { ListStore } from "../../src/users/reads.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { below, seeded } from "../support/random.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import {
  createGate,
  newUsersDatabase,
  relayAll,
  serveUsers,
  settle,
  type UsersOptions,
  type UsersProcess,
  usersProcess,
} from "../support/users.js";

const MOST = 8;

describe.each(DATABASES)("what the users service remembers, on $name", ({ start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
    db = await newUsersDatabase(server);
  });
  beforeEach(async () => {
    await redis.raw.flushall();
    await db.run("TRUNCATE users.followings, users.following_counts, users.followers, users.follower_counts");
    await db.run("TRUNCATE users.profiles, public.outbox");
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  const process = (options: Partial<UsersOptions> = {}): UsersProcess =>
    usersProcess({ db, scripts: redis.scripts, maxCachedIds: MOST, ...options });

  /** A process whose queries of lists go through a gate. */
  const gated = (options: Partial<UsersOptions> = {}) => {
    const gate = createGate();
    const wrap = (store: ListStore): ListStore => ({
      ids: (...asked) => gate.through(store.ids(...asked)),
      count: (...asked) => gate.through(store.count(...asked)),
    });
    return { gate, users: process({ wrap, ...options }) };
  };

  const follow = (users: UsersProcess, follower_id: string, following_id: string, wanted = true) =>
    (wanted ? users.follow : users.unfollow)({ follower_id, following_id });

  const read = async (users: UsersProcess, list: ListName, user: string, limit = 100) =>
    (await users.readList({ list, user, after: "", limit })).ids;

  test("an empty list is cached", async () => {
    const { gate, users } = gated();
    for (let time = 0; time < 3; time++) {
      expect(await read(users, "following", "nobody")).toEqual([]);
      expect(await read(users, "followers", "nobody")).toEqual([]);
    }
    expect(gate.queries).toBe(2);
  });

  test("every process answers a profile that was set, and none of a user who has none", async () => {
    const [one, other] = [await serveUsers(process()), await serveUsers(process())];
    for (const client of [one, other])
      await expect(client.getProfile({ user_id: "nobody" })).rejects.toMatchObject({ code: status.NOT_FOUND });
    await one.setProfile({ user_id: "nobody", display_name: "Somebody" });
    for (const client of [one, other])
      expect((await client.getProfile({ user_id: "nobody" })).profile?.display_name).toBe("Somebody");
    await Promise.all([one.close(), other.close()]);
  });

  test("cache misses at the same time share one query, of any page", async () => {
    const { gate, users } = gated();
    for (const user of ["b", "c", "d"]) await follow(users, "a", user);
    gate.close();
    const pages = ["", "b", "c", "d", "", "b"].map((after) =>
      users.readList({ list: "following", user: "a", after, limit: 2 }),
    );
    await eventually(() => gate.queries === 1, "the query is under way");
    gate.open();
    expect((await Promise.all(pages)).map(({ ids }) => ids.join(""))).toEqual(["bc", "cd", "d", "", "bc", "cd"]);
    expect(gate.queries).toBe(1);
  });

  test("a result read before a change is neither cached after it nor shared with later reads", async () => {
    const { gate, users } = gated();
    await follow(users, "a", "b");
    gate.close();
    const early = read(users, "following", "a");
    await eventually(() => gate.queries === 1, "the old list is read");
    await follow(users, "a", "c");
    const late = read(users, "following", "a");
    await eventually(() => gate.queries === 2, "who comes later asks anew");
    gate.open();
    expect([await early, await late]).toEqual([["b"], ["b", "c"]]);
    expect(await read(users, "following", "a")).toEqual(["b", "c"]);
    expect(await read(process(), "following", "a")).toEqual(["b", "c"]);
  });

  test("once the event of a follow is published, every process lists the follower", async () => {
    const { gate, users } = gated();
    gate.close();
    const early = read(users, "followers", "star");
    await eventually(() => gate.queries === 1, "the empty list is read");
    await follow(users, "a", "star");
    const published = await settle(db, users);
    expect(published.map(({ subject }) => subject)).toEqual(["edges.calm.star", "graph.followed"]);
    gate.open();
    expect(await early).toEqual([]);
    for (const one of [users, process()]) expect(await read(one, "followers", "star")).toEqual(["a"]);
  });

  test("a result read while the generation was lost is not cached", async () => {
    const { gate, users } = gated();
    gate.close();
    const early = read(users, "followers", "star");
    await eventually(() => gate.queries === 1, "the list is read");
    await redis.raw.del(usersKey("followers-generation", "star"));
    gate.open();
    await early;
    expect(await redis.raw.exists(usersKey("followers", "star"))).toBe(0);
    await read(users, "followers", "star");
    expect(await redis.raw.exists(usersKey("followers", "star"))).toBe(1);
  });

  test.each([
    ["remembered", 0],
    ["of which only the length is", MOST + 2],
  ])("a relay that was held up brings nothing back that a later one has changed, of a list %s", async (_what, more) => {
    const users = process();
    const others = Array.from({ length: more }, (_, n) => `u${10 + n}`);
    for (const follower of [...others, "a"]) await follow(users, follower, "star");
    await settle(db, users);
    await read(users, "followers", "star");
    const body = JSON.stringify({ follower_id: "a", following_id: "star", version: 1 });
    const event = { id: 1, key: "a:star", subject: "graph.followed", messageId: "1", body, createdAt: 1 };
    await follow(users, "a", "star", false);
    await settle(db, users);
    await process().prepare([event]);
    expect(await read(users, "followers", "star")).toEqual(others);
    expect((await users.readList({ list: "followers", user: "star", after: "", limit: 0 })).total).toBe(more);
  });

  test("the pages of a list that is too long to be cached show every change", async () => {
    const users = process();
    for (let n = 0; n < MOST + 4; n++) await follow(users, `u${10 + n}`, "star");
    await settle(db, users);
    for (let time = 0; time < 10; time++) expect(await read(users, "followers", "star", 5)).toHaveLength(5);
    await follow(process(), "u00", "star");
    await settle(db, process());
    expect(await read(users, "followers", "star", 5)).toEqual(["u00", "u10", "u11", "u12", "u13"]);
    expect((await users.readList({ list: "followers", user: "star", after: "", limit: 0 })).total).toBe(MOST + 5);
  });

  test("after random changes all processes list what the database holds, below and above the size that is cached", async () => {
    const random = seeded(99);
    const processes = [process(), process()];
    const [first, second] = processes as [UsersProcess, UsersProcess];
    const wanted = new Set<string>();
    for (let round = 0; round < 30; round++) {
      for (let n = 0; n < 6; n++) {
        const [follower, star] = [`u${below(random, 14)}`, `star${below(random, 2)}`];
        const pair = `${follower}:${star}`;
        const following = random() < (round < 15 ? 0.65 : 0.35);
        await follow(processes[n % 2] as UsersProcess, follower, star, following);
        if (following) wanted.add(pair);
        else wanted.delete(pair);
      }
      await settle(db, round % 2 === 0 ? first : second);
      const pairs = [...wanted].map((pair) => pair.split(":") as [string, string]);
      for (const users of processes) {
        for (const star of ["star0", "star1"]) {
          const expected = pairs.filter(([, followed]) => followed === star).map(([follower]) => follower);
          const request = { list: "followers", user: star, after: "" } as const;
          const shown = await users.readList({ ...request, limit: 100 });
          expect([shown.ids, shown.total]).toEqual([expected.sort(), expected.length]);
          expect(await users.readList({ ...request, limit: 0 })).toEqual({ ids: [], total: expected.length });
        }
        const one = `u${below(random, 14)}`;
        const expected = pairs.filter(([follower]) => follower === one).map(([, star]) => star);
        expect(await read(users, "following", one)).toEqual(expected.sort());
      }
    }
    const kept = await redis.raw.keys("timeline:x:users:*");
    for (const key of kept) {
      expect(await redis.raw.pttl(key)).toBeGreaterThan(0);
      expect(await redis.raw.pttl(key)).toBeLessThanOrEqual(600_000);
    }
  });

  test("older data of a Redis that comes back is not read", async () => {
    const own = await openRedis();
    const count = async (users: UsersProcess, user: string) =>
      (await users.readList({ list: "followers", user, after: "", limit: 0 })).total;
    const users = process({ scripts: own.scripts });
    const readAll = async () => [
      await read(users, "following", "a"),
      await read(users, "followers", "b"),
      await count(users, "long"),
      (await serving.getProfile({ user_id: "a" })).profile?.display_name,
    ];
    const serving = await serveUsers(users);
    await follow(users, "a", "b");
    for (let n = 0; n <= MOST; n++) await follow(users, `u${n}`, "long");
    await serving.setProfile({ user_id: "a", display_name: "old" });
    await settle(db, users);
    const old = [["b"], ["a"], MOST + 1, "old"];
    for (let time = 0; time < 5; time++) {
      expect(await readAll()).toEqual(old);
      await read(users, "followers", "long");
    }
    await own.raw.save();
    await follow(users, "a", "c");
    await follow(users, "a", "b", false);
    await follow(users, "a", "long");
    await serving.setProfile({ user_id: "a", display_name: "new" });
    await settle(db, users);
    own.broker.kill("SIGKILL");
    await own.broker.exited;
    const again = await startRedis({ dir: own.broker.dir, port: own.broker.port });
    await eventually(() => own.client.status === "ready", "Redis is connected again");
    expect(await own.raw.zrangebylex(usersKey("followers", "b"), "-", "+")).toEqual(["", "a"]);
    const now = [["c", "long"], [], MOST + 2, "new"];
    for (let time = 0; time < 5; time++) expect(await readAll()).toEqual(now);
    await serving.close();
    await again.stop();
    await own.close();
  });

  test("while Redis is unavailable reads and follows work, and no event is published", async () => {
    const own = await openRedis();
    const users = process({ scripts: own.scripts });
    const client = await serveUsers(users);
    await client.follow({ follower_id: "a", following_id: "b" });
    await settle(db, users);
    await client.getFollowingList({ user_id: "a" });
    await client.getFollowersList({ user_id: "b" });
    own.broker.kill("SIGKILL");
    await own.broker.exited;
    await client.follow({ follower_id: "a", following_id: "c" });
    await client.setProfile({ user_id: "a", display_name: "A" });
    expect((await client.getFollowingList({ user_id: "a" })).user_ids).toEqual(["b", "c"]);
    expect(await client.getFollowersList({ user_id: "b" })).toMatchObject({ user_ids: ["a"], total_count: 1 });
    expect(await client.getFollowCounts({ user_id: "a" })).toEqual({ following: 2, followers: 0 });
    expect((await client.getProfile({ user_id: "a" })).profile?.display_name).toBe("A");
    const published: unknown[] = [];
    const outcome: unknown = await relayAll({ db, prepare: users.prepare }, async (events) => {
      published.push(...events);
    }).catch((error: unknown) => error);
    expect(outcome).toBeInstanceOf(AppError);
    expect([(outcome as AppError).code, published]).toEqual(["unavailable", []]);
    await client.close();
    await own.close();
  });
});
