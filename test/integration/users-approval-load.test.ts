import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "@jest/globals";
import type { Db } from "../../src/platform/db/db.js";
import { type CountedRows, countingRows, TRANSACTION } from "../support/counted-rows.js";
import { DATABASES, type DatabaseServer, longTest } from "../support/databases.js";
import { eventually } from "../support/eventually.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { newUsersDatabase, serveUsers, type UsersClient, type UsersProcess, usersProcess } from "../support/users.js";

const REQUESTS = 100_000;
const PAGE = 1_000;
/** A turn accepts a quarter of this, and reads and writes each of its requests, edges, counts and events. */
const TURN_ROWS = 1_500;
const CALLERS = 4;
/** A statement sets the edges of all callers together. */
const STATEMENT_ROWS = 50;
const TURNS = 20;
const SWITCHES = 100;

describe.each(DATABASES)("a user whom very many ask, on $name", ({ name, start }) => {
  const test = longTest(name);
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;
  let client: UsersClient;
  let turns: CountedRows[];
  let statements: CountedRows[];
  /** A turn is committed when this has resolved. */
  let hold: Promise<void> | undefined;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
  });
  beforeEach(async () => {
    db = await newUsersDatabase(server);
    [turns, statements, hold] = [[], [], undefined];
    const counted = countingRows(db, (rows, sql) => {
      (sql === TRANSACTION ? turns : statements).push(rows);
      return sql === TRANSACTION ? hold : undefined;
    });
    users = usersProcess({ db: counted, scripts: redis.scripts });
    client = await serveUsers(users);
    await client.setApproval({ user_id: "star", approves_followers: true });
    await db.query(
      `INSERT INTO users.followings (follower_id, following_id, version, active, changed_at, requested_at)
       SELECT 'u' || n, 'star', 1, false, n, n FROM generate_series(1, $1::int) AS n`,
      [REQUESTS],
    );
    // PostgreSQL does so within a minute: until then a plan may sort all requests.
    await db.query("ANALYZE users.followings");
  }, 60_000);
  afterEach(() => client.close());
  afterAll(async () => {
    await Promise.all([server.stop(), redis.close()]);
  });

  const most = (rows: readonly CountedRows[]): CountedRows => ({
    read: Math.max(0, ...rows.map(({ read }) => read)),
    written: Math.max(0, ...rows.map(({ written }) => written)),
  });
  const areAtMost = (rows: readonly CountedRows[], bound: number): void => {
    const { read, written } = most(rows);
    expect({ read: Math.max(read, bound), written: Math.max(written, bound) }).toEqual({ read: bound, written: bound });
  };
  const left = async () =>
    (await db.query<{ n: number }>("SELECT count(*) AS n FROM users.followings WHERE requested_at IS NOT NULL"))[0]?.n;

  /** Several callers follow others, and `followed`, one call after another, until `isOver`. Resolves to the number of answers. */
  async function following(isOver: () => boolean, followed?: string): Promise<number> {
    let answers = 0;
    const call = async (caller: string): Promise<void> => {
      while (!isOver()) {
        const follower_id = `${caller}-${answers++}`;
        const pairs = [`of-${follower_id}`, followed ?? []]
          .flat()
          .map((following_id) => ({ follower_id, following_id }));
        for (const { changed, pending } of await Promise.all(pairs.map((pair) => client.follow(pair))))
          expect([changed, pending]).toEqual([true, false]);
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, (_, n) => call(`caller${n}`)));
    return answers;
  }

  test("a page of requests reads its own rows only", async () => {
    const page = await client.listFollowRequests({ user_id: "star", page_size: PAGE });
    expect([page.requests.length, page.requests[0]?.user_id]).toEqual([PAGE, `u${REQUESTS}`]);
    areAtMost(statements, 1.1 * PAGE);
    expect(most(statements).read).toBeGreaterThanOrEqual(PAGE);
  });

  test("requests are accepted in turns of few rows, among which others follow", async () => {
    await client.setApproval({ user_id: "star", approves_followers: false });
    statements.length = 0;
    const loops = [users.accepting(), users.accepting()];
    const answers = await following(() => turns.length >= TURNS, "star");
    await Promise.all(loops.map((loop) => loop.close()));
    expect(answers).toBeGreaterThanOrEqual(turns.length);
    areAtMost(turns, TURN_ROWS);
    areAtMost(statements, STATEMENT_ROWS);
    const rest = (await left()) ?? 0;
    expect(rest).toBeGreaterThan(REQUESTS - (TURNS + loops.length) * (TURN_ROWS / 4));
    expect(rest).toBeLessThan(REQUESTS);
  }, 60_000);

  test("whoever switches approval on and off in a loop makes neither turns nor follows of others longer", async () => {
    const loop = users.accepting();
    let switches = 0;
    const switching = (async () => {
      for (; switches < SWITCHES; switches++)
        await client.setApproval({ user_id: "star", approves_followers: switches % 2 === 1 });
    })();
    const answers = await following(() => switches >= SWITCHES);
    await switching;
    await eventually(async () => ((await left()) ?? 0) < REQUESTS, "some requests are accepted");
    await loop.close();
    expect(answers).toBeGreaterThanOrEqual(SWITCHES);
    areAtMost(turns, TURN_ROWS);
    areAtMost(statements, STATEMENT_ROWS);
  }, 60_000);

  // The other database runs one transaction after another.
  if (name === "PostgreSQL")
    test("nobody but those who are accepted waits for a turn that is not committed", async () => {
      await client.setApproval({ user_id: "star", approves_followers: false });
      let release = (): void => undefined;
      hold = new Promise((resolve) => {
        release = resolve;
      });
      const loop = users.accepting();
      await eventually(() => turns.length === 1, "a turn has done its work");
      let answered = 0;
      await following(() => ++answered > 2 * CALLERS, "star");
      const page = await client.listFollowRequests({ user_id: "star", page_size: PAGE });
      expect([page.requests.length, await left()]).toEqual([PAGE, REQUESTS]);
      release();
      await loop.close();
      expect(await left()).toBeLessThan(REQUESTS);
    });
});
