import { type ServiceError, status } from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import type { LimitKind } from "../../src/contracts/limits.js";
import { RemoteReactionKind, Visibility } from "../../src/gen/avion/posts.js";
import type { Limit } from "../../src/kernel/variables.js";
import { limitKey } from "../../src/state/keys.js";
import { createLimits } from "../../src/state/limits/limits.redis.js";
import { freeze } from "../support/brokers.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { becomes } from "../support/eventually.js";
import { POSTS_CONFIG, type PostsHarness, post, refusal, startPosts } from "../support/posts.js";
import { openRedis, type RedisBench } from "../support/redis.js";
import { richStatusOf } from "../support/rich-status.js";
import { newUsersDatabase, serveUsers, type UsersClient, usersProcess } from "../support/users.js";

const HOUR = 3_600_000;
const hourly = (most: number): Limit => ({ most, within: "1h", withinMs: HOUR });

let server: DatabaseServer;
let redis: RedisBench;
let posts: PostsHarness;
let users: UsersClient;
let limits: ReturnType<typeof createLimits>;

beforeAll(async () => {
  const start = DATABASES.at(-1)?.start as () => Promise<DatabaseServer>;
  [server, redis] = await Promise.all([start(), openRedis()]);
  limits = createLimits(redis.scripts);
  const { limited } = limits;
  const config = { ...POSTS_CONFIG, limitDrops: hourly(4), limitSameBody: hourly(2), limitReactions: hourly(3) };
  posts = await startPosts(await server.newDatabase(), { limited, config });
  const db = await newUsersDatabase(server);
  users = await serveUsers(usersProcess({ db, scripts: redis.scripts, limitFollows: hourly(2), limited }));
});
afterAll(async () => {
  await Promise.all([posts.stop(), users.close()]);
  await limits.close();
  await Promise.all([server.stop(), redis.close()]);
});

let texts = 0;
const newText = (): string => `text ${++texts}`;
/** Each drop has a text of its own. */
const drop = (user_id: string, more: Parameters<typeof post>[1] = {}) =>
  post(posts, { user_id, body: newText(), ...more });

/** What counts, once all reservations that end are released. */
async function counted(kind: LimitKind, user: string): Promise<number> {
  await limits.close();
  return redis.raw.zcard(limitKey(kind, user));
}

const DROPS_REFUSED = "RESOURCE_EXHAUSTED at most 4 drops within 1h";
const SAME_REFUSED = "RESOURCE_EXHAUSTED at most 2 drops with the same text for the same people within 1h";
const REACTIONS_REFUSED = "RESOURCE_EXHAUSTED at most 3 likes and shares within 1h";
const FOLLOWS_REFUSED = "RESOURCE_EXHAUSTED at most 2 follows within 1h";

test("past the limit CreateDrop is RESOURCE_EXHAUSTED, and tells the time to wait in every way", async () => {
  for (let n = 0; n < 4; n++) await drop("ada");
  const error = await drop("ada").then(
    () => Promise.reject(new Error("it was not refused")),
    (refused: ServiceError) => refused,
  );
  expect([error.code, error.details]).toEqual([status.RESOURCE_EXHAUSTED, "at most 4 drops within 1h"]);
  const ms = Number(error.metadata.get("retry-after-ms")[0]);
  expect(ms).toBeLessThanOrEqual(HOUR);
  expect(ms).toBeGreaterThan(HOUR - 60_000);
  expect(error.metadata.get("grpc-retry-pushback-ms")).toEqual([String(ms)]);
  expect(richStatusOf(error.metadata)).toEqual({
    code: status.RESOURCE_EXHAUSTED,
    message: error.details,
    details: [
      {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        retry_delay: expect.stringMatching(new RegExp(`^${Math.floor(ms / 1_000)}(\\.\\d{3})?s$`)),
      },
    ],
  });
  await drop("bob");
});

test("a drop made before by its idempotency key is answered at the limit, too, and does not count again", async () => {
  const keyed = { idempotency_key: "k1", body: "once" };
  const first = await drop("cid", keyed);
  for (let n = 0; n < 3; n++) expect(await drop("cid", keyed)).toBe(first);
  expect([await counted("drops", "cid"), await counted("same-body", "cid")]).toEqual([1, 0]);
  for (let n = 0; n < 3; n++) await drop("cid");
  expect(await refusal(drop("cid"))).toBe(DROPS_REFUSED);
  expect(await refusal(drop("cid", { idempotency_key: "k2" }))).toBe(DROPS_REFUSED);
  expect(await drop("cid", keyed)).toBe(first);
});

// Invariant 11.
test("what does not count refuses nobody while it is under way, and no more than the limit is ever made", async () => {
  const same = { body: "again", idempotency_key: "k3" };
  const made = await Promise.all(Array.from({ length: 60 }, () => drop("lea", same)));
  expect(new Set(made).size).toBe(1);
  expect([await counted("drops", "lea"), await counted("same-body", "lea")]).toEqual([1, 0]);
  for (let n = 0; n < 2; n++) await drop("lea");
  const reply_to = "019a0000-0000-7000-8000-000000000000";
  const missing = Array.from({ length: 30 }, () => refusal(drop("lea", { reply_to })));
  const [last] = await Promise.all([drop("lea"), ...missing]);
  expect(last).toMatch(/^[0-9a-f-]{36}$/);
  for (const refused of await Promise.all(missing)) expect(refused).not.toMatch(/^UNAVAILABLE/);
  const all = await Promise.allSettled(Array.from({ length: 30 }, () => drop("mia")));
  expect(all.filter(({ status }) => status === "fulfilled")).toHaveLength(4);
  const { likeDrop } = posts.call;
  for (let n = 0; n < 2; n++) await likeDrop({ drop_id: await drop(`nat${n}`), user_id: "ned" });
  const drop_id = await drop("nat0");
  const liked = await Promise.all(Array.from({ length: 20 }, () => likeDrop({ drop_id, user_id: "ned" })));
  expect(liked.filter(({ changed }) => changed)).toHaveLength(1);
});

test("a reservation of a process that is gone counts in the end, and its key keeps its time to live", async () => {
  const key = limitKey("drops", "ola");
  for (let n = 0; n < 3; n++) await drop("ola");
  await redis.raw.zadd(key, Date.now() - 11_000, "~gone");
  expect(await refusal(drop("ola"))).toBe(DROPS_REFUSED);
  expect(await redis.raw.pttl(key)).toBeGreaterThan(0);
});

test("imports, refused drops and deletions do not count, and are not refused at the limit", async () => {
  const first = await drop("dan");
  const gone = "019a0000-0000-7000-8000-000000000000";
  for (let n = 0; n < 6; n++) {
    expect(await refusal(drop("dan", { reply_to: gone }))).toMatch(/^INVALID_ARGUMENT reply_to/);
    expect(await refusal(drop("dan", { body: "" }))).toMatch(/^INVALID_ARGUMENT body/);
    await drop("dan", { created_at: Date.now() - HOUR, body: "imported" });
  }
  expect(await counted("drops", "dan")).toBe(1);
  for (let n = 0; n < 3; n++) await drop("dan");
  await posts.call.deleteDrop({ drop_id: first, user_id: "dan" });
  expect(await refusal(drop("dan"))).toBe(DROPS_REFUSED);
  await drop("dan", { created_at: Date.now() - HOUR });
});

test("one text for one audience may be posted a few times; another text, audience or author is another one", async () => {
  const same = { body: "buy this" };
  const direct = (...recipients: string[]) => ({ ...same, visibility: Visibility.DIRECT, recipients });
  for (let n = 0; n < 2; n++) await drop("eve", same);
  expect(await refusal(drop("eve", same))).toBe(SAME_REFUSED);
  const parent = await drop("fay");
  expect(await refusal(drop("eve", { ...same, reply_to: parent }))).toBe(SAME_REFUSED);
  await drop("fay", same);
  await drop("eve", direct("u1", "u2"));
  await drop("eve", direct("u2", "u1"));
  expect(await counted("drops", "eve")).toBe(4);
  await redis.raw.del(limitKey("drops", "eve"));
  expect(await refusal(drop("eve", direct("u1", "u2", "u1")))).toBe(SAME_REFUSED);
  await drop("eve", direct("u1"));
  await drop("eve", { ...same, visibility: Visibility.UNLISTED });
});

test("likes and shares count together; a repeated one and its withdrawal neither count nor are refused", async () => {
  const [first, second, third, fourth] = await Promise.all([drop("gus"), drop("gus"), drop("gus"), drop("gus")]);
  const { likeDrop, unlikeDrop, shareDrop, unshareDrop } = posts.call;
  const by = (drop_id = "") => ({ drop_id, user_id: "hal" });
  for (let n = 0; n < 3; n++) expect(await likeDrop(by(first))).toMatchObject({ changed: n === 0 });
  await shareDrop(by(first));
  expect([await counted("reactions", "hal"), await counted("drops", "hal")]).toEqual([2, 1]);
  await unlikeDrop(by(first));
  await unlikeDrop(by(first));
  await posts.call.deleteDrop({ drop_id: fourth, user_id: "gus" });
  expect(await refusal(likeDrop(by(fourth)))).toMatch(/^FAILED_PRECONDITION/);
  expect(await counted("reactions", "hal")).toBe(2);
  await likeDrop(by(second));
  expect(await refusal(likeDrop(by(third)))).toBe(REACTIONS_REFUSED);
  expect(await refusal(likeDrop(by(first)))).toBe(REACTIONS_REFUSED);
  expect(await refusal(shareDrop(by(third)))).toBe(REACTIONS_REFUSED);
  expect(await likeDrop(by(second))).toMatchObject({ changed: false });
  expect(await shareDrop(by(first))).toMatchObject({ changed: false });
  expect(await unshareDrop(by(first))).toMatchObject({ changed: true });
  expect(await unlikeDrop(by(second))).toMatchObject({ changed: true });
});

test("a share counts as a drop, too, and one that is refused counts nowhere", async () => {
  const { shareDrop, unshareDrop, likeDrop } = posts.call;
  const [first, second] = [await drop("pia"), await drop("pia")];
  const by = (drop_id: string) => ({ drop_id, user_id: "quy" });
  for (let n = 0; n < 3; n++) await drop("quy");
  expect(await shareDrop(by(first))).toMatchObject({ changed: true });
  expect(await refusal(shareDrop(by(second)))).toBe(DROPS_REFUSED);
  expect(await refusal(drop("quy"))).toBe(DROPS_REFUSED);
  expect([await counted("drops", "quy"), await counted("reactions", "quy")]).toEqual([4, 1]);
  expect(await shareDrop(by(first))).toMatchObject({ changed: false });
  expect(await likeDrop(by(second))).toMatchObject({ changed: true });
  expect(await unshareDrop(by(first))).toMatchObject({ changed: true });
});

test("reactions of a remote actor count, repeated ones and their deletions do not", async () => {
  const { putRemoteReaction, deleteRemoteReaction } = posts.call;
  const actor_uri = "https://far.example/users/flood";
  const object = await drop("gil");
  const react = (n: number) =>
    putRemoteReaction({ uri: `https://far.example/likes/${n}`, actor_uri, object, kind: RemoteReactionKind.LIKE });
  for (const n of [1, 1, 2]) await react(n);
  expect(await counted("reactions", actor_uri)).toBe(2);
  await react(3);
  expect(await refusal(react(4))).toBe(REACTIONS_REFUSED);
  expect(await react(1)).toMatchObject({ created: false });
  expect(await deleteRemoteReaction({ uri: "https://far.example/likes/1", actor_uri })).toEqual({ changed: true });
});

test("a follow that replaces another one counts in no limit of other follows, and is there with the end of the other", async () => {
  const by = (following_id: string, replaces = "") => ({ follower_id: "kim", following_id, replaces });
  for (const id of ["a", "b"]) await users.follow(by(id));
  expect(await refusal(users.follow(by("c")))).toBe(FOLLOWS_REFUSED);
  const moved = await users.follow(by("a-new", "a"));
  expect(moved).toMatchObject({ changed: true });
  expect(await users.follow(by("a-new", "a"))).toEqual({ ...moved, changed: false });
  expect((await users.getFollowingList({ user_id: "kim" })).user_ids).toEqual(["a-new", "b"]);
  expect(await users.follow(by("a-new", "b"))).toMatchObject({ changed: false });
  expect((await users.getFollowingList({ user_id: "kim" })).user_ids).toEqual(["a-new"]);
  expect(await counted("follows", "kim")).toBe(2);
  expect(await refusal(users.follow(by("c", "nobody")))).toBe(FOLLOWS_REFUSED);
  expect(await refusal(users.follow(by("c", "a-new")))).toBe(FOLLOWS_REFUSED);
  expect((await users.getFollowingList({ user_id: "kim" })).user_ids).toEqual(["a-new"]);
  await users.block({ user_id: "dan", target_id: "kit" });
  await users.follow({ ...by("a"), follower_id: "kit" });
  expect(await refusal(users.follow({ ...by("dan", "a"), follower_id: "kit" }))).toMatch(
    /^FAILED_PRECONDITION following_id/,
  );
  expect((await users.getFollowingList({ user_id: "kit" })).user_ids).toEqual(["a"]);
  expect(await refusal(users.follow(by("c", "c")))).toMatch(/^INVALID_ARGUMENT replaces/);
});

test("follows count; repeated ones, unfollows and FollowMany neither count nor are refused", async () => {
  const by = (following_id: string) => ({ follower_id: "ivy", following_id });
  const first = await users.follow(by("a"));
  for (let n = 0; n < 3; n++) expect(await users.follow(by("a"))).toEqual({ ...first, changed: false });
  await users.followMany({ follows: ["b", "c", "d"].map(by) });
  expect(await counted("follows", "ivy")).toBe(1);
  await users.follow(by("e"));
  expect(await refusal(users.follow(by("f")))).toBe(FOLLOWS_REFUSED);
  expect(await users.follow(by("a"))).toEqual({ ...first, changed: false });
  expect(await users.unfollow(by("a"))).toMatchObject({ changed: true });
  expect(await refusal(users.follow(by("a")))).toBe(FOLLOWS_REFUSED);
  expect(await users.followMany({ follows: ["f", "g"].map(by) })).toEqual({ changed: 2, pending: 0 });
  expect((await users.follow({ follower_id: "jan", following_id: "a" })).changed).toBe(true);
});

test("a request counts as a follow; repeating, accepting and taking it back neither count nor are refused", async () => {
  const by = (following_id: string) => ({ follower_id: "leo", following_id });
  await users.setProfile({ user_id: "locked", approves_followers: true });
  expect(await users.follow(by("locked"))).toMatchObject({ changed: true, pending: true });
  await users.follow(by("a"));
  expect(await counted("follows", "leo")).toBe(2);
  expect(await users.follow(by("locked"))).toMatchObject({ changed: false, pending: true });
  expect(await refusal(users.follow(by("b")))).toBe(FOLLOWS_REFUSED);
  expect(await users.acceptFollow({ user_id: "locked", follower_id: "leo" })).toMatchObject({ changed: true });
  expect(await users.unfollow(by("locked"))).toMatchObject({ changed: true });
  // A user who asks and takes it back again and again reaches the limit.
  expect(await refusal(users.follow(by("locked")))).toBe(FOLLOWS_REFUSED);
  expect(await counted("follows", "leo")).toBe(2);
});

test("while Redis does not answer nothing is refused, and calls are answered soon; then limits hold again", async () => {
  for (let n = 0; n < 4; n++) await drop("kim");
  expect(await refusal(drop("kim"))).toBe(DROPS_REFUSED);
  await freeze(redis.broker);
  for (let n = 0; n < 4; n++) {
    const started = performance.now();
    await drop("kim");
    expect(performance.now() - started).toBeLessThan(2_000);
  }
  redis.broker.kill("SIGCONT");
  await becomes(async () => expect(await refusal(drop("kim"))).toBe(DROPS_REFUSED));
});

test("what is refused because the user is erased leaves no key that names them", async () => {
  const drop_id = await drop("bob");
  await posts.store.erasure.mark("eve-1");
  const writes = [drop("eve-1"), posts.call.likeDrop({ drop_id, user_id: "eve-1" })];
  for (const write of writes) expect(await refusal(write)).toBe("FAILED_PRECONDITION user_id: the user is erased");
  await limits.close();
  expect(await redis.raw.keys("*eve-1*")).toEqual([]);
});
