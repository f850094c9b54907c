import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { activityId, parseStoredActivity, type Requested } from "../../src/contracts/activity.js";
import type { OutboxEvent } from "../../src/contracts/outbox.js";
import type { Db } from "../../src/platform/db/db.js";
import { createApprovalStore } from "../../src/users/approvals.sql.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { newUsersDatabase, settle, type UsersProcess, usersProcess, WRONG_LISTS } from "../support/users.js";

const PEOPLE = ["a", "b", "c"] as const;
const MOST = 100;
const ALWAYS = { expires_at: 0, reposts_only: false };

const KINDS = ["follow", "unfollow", "accept", "remove", "block", "unblock", "on", "off"] as const;
interface Step {
  readonly kind: (typeof KINDS)[number];
  readonly user: string;
  readonly target: string;
}

/** Follows, requests and blocks, by `follower>followed`. */
class Model {
  readonly follows = new Set<string>();
  readonly requests = new Set<string>();
  readonly blocks = new Set<string>();
  readonly approving = new Set<string>();

  /** Returns false if the step is refused. */
  take({ kind, user, target }: Step): boolean {
    const [pair, back] = [`${user}>${target}`, `${target}>${user}`];
    const isBlocked = this.blocks.has(pair) || this.blocks.has(back);
    if (kind === "follow") {
      if (isBlocked) return false;
      if (!this.follows.has(pair)) (this.approving.has(target) ? this.requests : this.#accepted(pair)).add(pair);
    } else if (kind === "accept") {
      if (isBlocked) return false;
      if (this.requests.has(back)) this.#accepted(back).add(back);
    } else if (kind === "unfollow") this.#end(pair);
    else if (kind === "remove") this.#end(back);
    else if (kind === "block") for (const ended of [this.blocks.add(pair) && pair, back]) this.#end(ended);
    else if (kind === "unblock") this.blocks.delete(pair);
    else if (kind === "on") this.approving.add(user);
    else if (this.approving.delete(user))
      for (const asked of [...this.requests]) if (asked.endsWith(`>${user}`)) this.#accepted(asked).add(asked);
    return true;
  }

  #accepted(pair: string): Set<string> {
    this.requests.delete(pair);
    return this.follows;
  }

  #end(pair: string): void {
    this.requests.delete(pair);
    this.follows.delete(pair);
  }
}

const person = fc.constantFrom(...PEOPLE);
const step = fc
  .record({ kind: fc.constantFrom(...KINDS), user: person, target: person })
  .filter(({ user, target }) => user !== target);

describe.each(DATABASES)("random requests, follows and blocks on $name", ({ name, start }) => {
  let server: DatabaseServer;
  let redis: RedisBench;
  let db: Db;
  let users: UsersProcess;

  beforeAll(async () => {
    [server, redis] = await Promise.all([start(), openRedis()]);
    db = await newUsersDatabase(server);
  });
  beforeEach(() => {
    users = usersProcess({ db, scripts: redis.scripts, maxFollowing: MOST });
  });
  afterAll(() => Promise.all([server.stop(), redis.close()]));

  const take = async ({ kind, user, target }: Step): Promise<void> => {
    const [edge, answer] = [
      { follower_id: user, following_id: target },
      { user_id: user, follower_id: target },
    ];
    const relation = { user_id: user, target_id: target, ...ALWAYS };
    const profile = { user_id: user, display_name: "", bio: "", avatar_url: "" };
    if (kind === "follow" || kind === "unfollow") await users[kind](edge);
    else if (kind === "accept") await users.acceptFollow(answer);
    else if (kind === "remove") await users.removeFollower(answer);
    else if (kind === "block" || kind === "unblock") await users[kind](relation);
    else await users.setProfile({ ...profile, approves_followers: kind === "on" });
    if (kind === "off") while ((await createApprovalStore(db).accept(1, MOST)) !== undefined);
  };

  const pairs = async (condition: string): Promise<string[]> =>
    (
      await db.query<{ pair: string }>(
        `SELECT follower_id || '>' || following_id AS pair FROM users.followings WHERE ${condition} ORDER BY 1`,
      )
    ).map(({ pair }) => pair);

  /** Requests as the newest of their events tell them, whatever the order in which these arrive. */
  const told = async (): Promise<string[]> => {
    const rows = await db.query<Pick<OutboxEvent, "subject" | "messageId" | "body">>(
      `SELECT subject, message_id AS "messageId", body FROM public.outbox WHERE source = 'requests' ORDER BY random()`,
    );
    const newest = new Map<string, Requested>();
    for (const { subject, messageId, body } of rows) {
      const event = parseStoredActivity(subject, Buffer.from(body));
      expect(activityId(event)).toBe(messageId);
      const { payload } = event as { readonly payload: Requested };
      const pair = `${payload.follower_id}>${payload.following_id}`;
      expect(payload.created_at !== undefined).toBe(payload.active);
      if (Number(newest.get(pair)?.version ?? 0) < Number(payload.version)) newest.set(pair, payload);
    }
    return [...newest].flatMap(([pair, { active }]) => (active ? pair : [])).sort();
  };

  test("end as the model says, and both lists and counts agree", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
        await db.run(
          "TRUNCATE users.relations, users.followings, users.following_counts, users.followers, public.outbox",
        );
        await db.run("TRUNCATE users.follower_counts, users.approvals");
        await redis.raw.flushall();
        const model = new Model();
        for (const taken of steps) {
          const isAllowed = model.take(taken);
          const isDone = await take(taken).then(
            () => true,
            ({ code }: { code?: string }) => (code === "conflict" ? false : code),
          );
          expect([taken, isDone]).toEqual([taken, isAllowed]);
        }
        expect(await pairs("active")).toEqual([...model.follows].sort());
        expect(await pairs("requested_at IS NOT NULL")).toEqual([...model.requests].sort());
        expect(await told()).toEqual([...model.requests].sort());
        await settle(db, users);
        expect(await db.query(WRONG_LISTS)).toEqual([]);
      }),
      { numRuns: name === "PGlite" ? 15 : 60, seed: 7 },
    );
  }, 120_000);
});
