import { afterAll, beforeAll, beforeEach, describe, expect } from "@jest/globals";
import type { Db } from "../../src/platform/db/db.js";
import { DATABASES, type DatabaseServer, longTest } from "../support/databases.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { newUsersDatabase, serveUsers, type UsersClient, type UsersProcess, usersProcess } from "../support/users.js";

const REQUESTS = 100_000;
const FOR_MS = 5_000;
/** A busy machine may stop for a second. */
const SLOW_MS = 2_000;

describe.each(DATABASES)("a user whom very many ask, on $name", ({ name, start }) => {
  const test = longTest(name);
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;
  let client: UsersClient;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  beforeEach(async () => {
    db = await newUsersDatabase(server);
    users = usersProcess({ db, scripts: redis.scripts });
    client = await serveUsers(users);
    await client.setApproval({ user_id: "star", approves_followers: true });
    await db.query(
      `INSERT INTO users.followings (follower_id, following_id, version, active, changed_at, requested_at)
       SELECT 'u' || n, 'star', 1, false, n, n FROM generate_series(1, $1::int) AS n`,
      [REQUESTS],
    );
  }, 60_000);
  afterAll(async () => {
    await client.close();
    await Promise.all([server.stop(), redis.close()]);
  });

  const within = async <T>(call: Promise<T>, latencies: number[]): Promise<T> => {
    const begin = performance.now();
    const answer = await call;
    latencies.push(performance.now() - begin);
    return answer;
  };
  const isBelow = (latencies: readonly number[]) => {
    const sorted = [...latencies].sort((a, b) => a - b);
    const p95 = sorted[Math.floor(sorted.length * 0.95)] ?? 0;
    expect({ p95: p95 < SLOW_MS / 4, most: (sorted.at(-1) ?? 0) < SLOW_MS }).toEqual({ p95: true, most: true });
  };
  const follow = (n: number) => ({ follower_id: `other${n % 500}`, following_id: `target${n}` });
  const left = async () =>
    (await db.query<{ n: number }>("SELECT count(*) AS n FROM users.followings WHERE requested_at IS NOT NULL"))[0]?.n;

  test("the requests are read by pages, and others follow as before, while they are accepted", async () => {
    const latencies: number[] = [];
    const page = await within(client.listFollowRequests({ user_id: "star", page_size: 1_000 }), latencies);
    expect([page.requests.length, page.requests[0]?.user_id]).toEqual([1_000, `u${REQUESTS}`]);
    await within(client.follow({ follower_id: "one", following_id: "star" }), latencies);
    await within(client.setApproval({ user_id: "star", approves_followers: false }), latencies);
    const loops = [users.accepting(), users.accepting()];
    const end = performance.now() + FOR_MS;
    for (let n = 0; performance.now() < end; n++) {
      const calls = [client.follow(follow(n)), client.follow({ follower_id: `late${n}`, following_id: "star" })];
      for (const { changed, pending } of await within(Promise.all(calls), latencies))
        expect([changed, pending]).toEqual([true, false]);
    }
    isBelow(latencies);
    await Promise.all(loops.map((loop) => loop.close()));
    const rest = (await left()) ?? 0;
    expect(rest).toBeGreaterThan(0);
    expect(rest).toBeLessThan(REQUESTS);
  }, 60_000);

  test("whoever switches approval on and off in a loop holds up nobody", async () => {
    const latencies: number[] = [];
    const loop = users.accepting();
    const end = performance.now() + FOR_MS;
    let isOver = false;
    const toggling = (async () => {
      for (let n = 0; !isOver; n++) await client.setApproval({ user_id: "star", approves_followers: n % 2 === 1 });
    })();
    for (let n = 0; performance.now() < end; n++)
      expect(await within(client.follow(follow(n)), latencies)).toMatchObject({ changed: true });
    isOver = true;
    await toggling;
    isBelow(latencies);
    await loop.close();
    expect(await left()).toBeLessThan(REQUESTS);
  }, 60_000);
});
