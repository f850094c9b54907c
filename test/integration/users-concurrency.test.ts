import { afterAll, beforeAll, beforeEach, describe, expect } from "@jest/globals";
import type { OutboxEvent } from "../../src/contracts/outbox.js";
import { chunked } from "../../src/kernel/concurrency.js";
import { createOutboxStore } from "../../src/outbox/store.sql.js";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer, longTest } from "../support/databases.js";
import { below, duplicatedAndShuffled, type Random, seeded, shuffled } from "../support/random.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { quickTest as test } from "../support/suite.js";
import { deliver, newUsersDatabase, relayAll, serveUsers, type UsersProcess, usersProcess } from "../support/users.js";

interface Change {
  readonly pair: string;
  readonly version: number;
  readonly following: boolean;
}

describe.each(DATABASES)("follows at the same time, on $name", ({ name, start }) => {
  const long = longTest(name);
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  beforeEach(async () => {
    await redis.raw.flushall();
    db = await newUsersDatabase(server);
    users = usersProcess({ db, scripts: redis.scripts });
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  /** Takes all edges out of the outbox without applying them. */
  const takeEdges = async (): Promise<OutboxEvent[]> => relayAll({ db, prepare: users.prepare }, async () => undefined);

  /** All edges that were written, also those that a newer one of their pair replaced before they were taken. */
  const writtenEdges = (): Promise<OutboxEvent[]> =>
    db.query<OutboxEvent>(
      `SELECT id, key, subject, message_id AS "messageId", body, created_at AS "createdAt"
       FROM public.outbox WHERE source = 'edges' ORDER BY id`,
    );

  const edgesOf = async (user: string) =>
    db.query<{ follower: string; version: number; active: boolean }>(
      "SELECT follower_id AS follower, version, active FROM users.followers WHERE following_id = $1 ORDER BY 1",
      [user],
    );

  const countOf = async (user: string) =>
    (await db.query<{ followers: number }>("SELECT followers FROM users.follower_counts WHERE user_id = $1", [user]))[0]
      ?.followers;

  const lastOf = (changes: readonly Change[]): Map<string, Change> => {
    const last = new Map<string, Change>();
    for (const change of changes)
      if ((last.get(change.pair)?.version ?? 0) < change.version) last.set(change.pair, change);
    return last;
  };

  // Invariant 3.
  long(
    "1,000 follows and unfollows by 50 clients, applied in any order and twice, end in the state of the model",
    async () => {
      const random = seeded(20_231);
      const client = await serveUsers(users);
      const changes: Change[] = [];
      const act = async (own: Random): Promise<void> => {
        for (let n = 0; n < 20; n++) {
          const pair = { follower_id: `u${below(own, 30)}`, following_id: own() < 0.8 ? "star" : `u3${below(own, 5)}` };
          const following = own() < 0.6;
          const { changed, version } = await (following ? client.follow(pair) : client.unfollow(pair));
          if (changed) changes.push({ pair: `${pair.follower_id}:${pair.following_id}`, version, following });
        }
      };
      await Promise.all(Array.from({ length: 50 }, (_, n) => act(seeded(below(random, 1_000_000) + n))));

      // Changes of a pair alternate, whoever made them, and their versions rise.
      for (const pair of new Set(changes.map((change) => change.pair))) {
        const own = changes.filter((change) => change.pair === pair).sort((a, b) => a.version - b.version);
        expect(own.map(({ following }) => following)).toEqual(own.map((_, n) => n % 2 === 0));
        expect(new Set(own.map(({ version }) => version)).size).toBe(own.length);
      }
      await takeEdges();
      const edges = await writtenEdges();
      const told = edges.map(({ key, body }) => ({
        key,
        ...(JSON.parse(body) as { version: number; following: boolean }),
      }));
      const order = (a: Change, b: Change) => (a.pair === b.pair ? a.version - b.version : a.pair < b.pair ? -1 : 1);
      expect(told.map(({ key, version, following }) => ({ pair: key, version, following })).sort(order)).toEqual(
        [...changes].sort(order),
      );

      const others = usersProcess({ db, scripts: redis.scripts });
      for (const part of chunked(duplicatedAndShuffled(random, edges), 300))
        await deliver([users.normal, others.hot], part);
      const model = lastOf(changes);
      const standing = [...model.values()].filter(({ following }) => following);
      const followersOf = (user: string) =>
        standing.flatMap(({ pair }) => (pair.endsWith(`:${user}`) ? [pair.slice(0, pair.indexOf(":"))] : [])).sort();
      for (const user of ["star", "u30", "u31", "u32", "u33", "u34"]) {
        const expected = followersOf(user);
        expect(await countOf(user)).toBe(expected.length);
        expect((await client.getFollowersList({ user_id: user })).user_ids).toEqual(expected);
        expect((await client.getFollowCounts({ user_id: user })).followers).toBe(expected.length);
        for (const { follower, version, active } of await edgesOf(user))
          expect({ pair: `${follower}:${user}`, version, following: active }).toEqual(model.get(`${follower}:${user}`));
      }
      for (let n = 0; n < 30; n++) {
        const expected = standing.filter(({ pair }) => pair.startsWith(`u${n}:`)).length;
        expect((await client.getFollowCounts({ user_id: `u${n}` })).following).toBe(expected);
      }
      const graph = await takeEdges();
      expect(new Set(graph.map(({ messageId }) => messageId)).size).toBe(graph.length);
      const announced = graph.map(({ key, subject, body }) => ({
        pair: key,
        version: (JSON.parse(body) as { version: number }).version,
        following: subject === "graph.followed",
      }));
      expect(lastOf(announced)).toEqual(model);
      await client.close();
    },
  );

  test("batches and imports at the same time, in any order, count nothing twice", async () => {
    const random = seeded(7);
    const client = await serveUsers(users);
    const pairs = Array.from({ length: 40 }, (_, follower) =>
      Array.from({ length: 10 }, (_, followed) => ({ follower_id: `a${follower}`, following_id: `b${followed}` })),
    ).flat();
    const importing = Array.from({ length: 8 }, () => client.followMany({ follows: shuffled(random, pairs) }));
    const changed = (await Promise.all(importing)).reduce((sum, answer) => sum + answer.changed, 0);
    expect(changed).toBe(400);
    const edges = await takeEdges();
    const apply = usersProcess({ db, scripts: redis.scripts });
    await Promise.all([1, 2, 3].map(() => deliver([users.normal, apply.normal, apply.hot], shuffled(random, edges))));
    for (let n = 0; n < 10; n++) expect(await countOf(`b${n}`)).toBe(40);
    for (let n = 0; n < 40; n++) expect((await client.getFollowCounts({ user_id: `a${n}` })).following).toBe(10);
    expect(await takeEdges()).toHaveLength(400);
    await client.close();
  });

  test("of many equal requests at once one changes the edge", async () => {
    const pair = { follower_id: "a", following_id: "b" };
    for (let round = 0; round < 10; round++) {
      for (const set of [users.follow, users.unfollow]) {
        const answers = await Promise.all(Array.from({ length: 20 }, () => set(pair)));
        expect(answers.filter(({ changed }) => changed)).toHaveLength(1);
        expect(new Set(answers.map(({ version }) => version)).size).toBe(1);
      }
    }
    expect(await writtenEdges()).toHaveLength(20);
  });

  test("the limit of followed users holds for follows at the same time", async () => {
    const capped = usersProcess({ db, scripts: redis.scripts, maxFollowing: 10 });
    const client = await serveUsers(capped);
    const outcomes = await Promise.allSettled(
      Array.from({ length: 40 }, (_, n) =>
        n % 4 === 0
          ? client.followMany({ follows: [0, 1].map((m) => ({ follower_id: "eager", following_id: `m${n}.${m}` })) })
          : client.follow({ follower_id: "eager", following_id: `s${n}` }),
      ),
    );
    expect(outcomes.some(({ status }) => status === "rejected")).toBe(true);
    const { following } = await client.getFollowCounts({ user_id: "eager" });
    expect(following).toBeLessThanOrEqual(10);
    expect((await client.getFollowingList({ user_id: "eager" })).user_ids).toHaveLength(following);
    expect(await takeEdges()).toHaveLength(following);
    await client.close();
  });

  test("of follows at the same time only those of a user at the limit are refused", async () => {
    const client = await serveUsers(usersProcess({ db, scripts: redis.scripts, maxFollowing: 2 }));
    const users = Array.from({ length: 12 }, (_, n) => `u${n}`);
    const outcomes = await Promise.allSettled(
      users.flatMap((follower_id, n) =>
        Array.from({ length: n === 5 ? 3 : 2 }, (_, m) => client.follow({ follower_id, following_id: `m${m}` })),
      ),
    );
    expect(outcomes.filter(({ status }) => status === "rejected")).toHaveLength(1);
    for (const user_id of users) expect((await client.getFollowCounts({ user_id })).following).toBe(2);
    expect(await takeEdges()).toHaveLength(24);
    await client.close();
  });

  test("an unfollow that arrives first stays; older edges are dropped", async () => {
    const event = (version: number, following: boolean, follower = "early"): OutboxEvent => ({
      id: version,
      key: `${follower}:late`,
      subject: "edges.calm.late",
      messageId: `${version}`,
      body: JSON.stringify({ follower_id: follower, following_id: "late", version, following, changed_at: version }),
      createdAt: version,
    });
    await deliver([users.normal], [event(5, false)]);
    await deliver([users.hot], [event(4, true)]);
    expect(await edgesOf("late")).toEqual([{ follower: "early", version: 5, active: false }]);
    // The unfollow between the two follows is never seen, and the edge is announced all the same.
    await deliver([users.normal], [event(1, true, "twice")]);
    await deliver([users.normal], [event(3, true, "twice"), event(2, false, "twice")]);
    expect(await users.readList({ list: "followers", user: "late", after: "", limit: 5 })).toEqual({
      ids: ["twice"],
      total: 1,
    });
    const store = createOutboxStore(db, "users");
    const graph: string[] = [];
    for (let claimed = await store.claim(9, 9_999); claimed.length > 0; claimed = await store.claim(9, 9_999)) {
      graph.push(...claimed.map(({ messageId }) => messageId));
      await store.markPublished(claimed.map(({ id }) => id));
    }
    expect(graph.sort()).toEqual([
      "user_followed:twice:late:1",
      "user_followed:twice:late:3",
      "user_unfollowed:early:late:5",
    ]);
  });

  test("a malformed message is invalid", async () => {
    const event = { id: 1, key: "a:b", subject: "edges.calm.b", messageId: "1", body: "nothing", createdAt: 1 };
    await expect(deliver([users.normal], [event])).rejects.toMatchObject({ code: "invalid" });
  });
});
