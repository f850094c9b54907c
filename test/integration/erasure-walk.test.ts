import { afterEach, beforeEach, expect, test } from "@jest/globals";
import type { Msg } from "nats";
import { NO_DROPS } from "../../src/contracts/timelines.js";
import { Visibility } from "../../src/gen/avion/posts.js";
import { AppError } from "../../src/kernel/errors.js";
import { FAILPOINTS, hookFailpoints } from "../../src/kernel/failpoints.js";
import { encodeId } from "../../src/kernel/ids.js";
import { silent } from "../../src/kernel/logger.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { readOwnDrops } from "../../src/state/erased/own-drops.redis.js";
import { createSend } from "../../src/state/erased/walk.redis.js";
import {
  deletedKey,
  edgesKey,
  homeKey,
  LOCAL_KEY,
  pullsKey,
  RECENT_KEY,
  TOMBSTONES_KEY,
  unfollowersKey,
} from "../../src/state/keys.js";
import { classify, KINDS } from "../../src/state/kinds.js";
import { dropOf, fencesOn, forgetOn, OF_NOBODY, snapshot, TRACES } from "../support/erasure.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { NAMES_NOBODY } from "../support/world.js";

const redis = redisOfFile();
const nats = natsOfFile();

const OTHERS = ["ada2", "ad", "Ada", "=YWRh", "örjan", "user", "local"];
const context = { stopping: new AbortController().signal, left: async () => undefined };
const idsOf = (user: string) => [user, encodeId(user)];

beforeEach(async () => {
  for (const stream of ["NOTIFY", "DLQ", "CHECKS"]) await nats.manager.streams.purge(stream);
  // Refills what an empty Redis lacks.
  await fencesOn(redis.scripts).tombstonedAmong(["none"]);
});
afterEach(() => hookFailpoints(undefined));

async function fillOthers(): Promise<void> {
  for (const [at, user] of OTHERS.entries()) {
    const other = OTHERS[(at + 1) % OTHERS.length] as string;
    for (const { leave } of TRACES) await leave(redis.raw, user, other);
  }
  for (const key of OF_NOBODY) await redis.raw.set(key, "ada");
  await redis.raw.set("of another program:ada", "ada");
}

async function fillUser(user: string): Promise<void> {
  for (const { leave } of TRACES) for (const other of OTHERS) await leave(redis.raw, user, other);
  await fencesOn(redis.scripts).recordTombstones([{ drop: dropOf(user), author: user, time: Date.now() }]);
}

const stays = (key: string): boolean => classify(key)?.kind.stays !== undefined;

/** Without what may stay: tombstones, and when the last drop of a user was deleted. */
async function contents(): Promise<Record<string, unknown>> {
  const all = Object.entries(await snapshot(redis.raw)).filter(([key]) => !stays(key));
  const kept = all.map(([key, content]) => {
    const fields = Array.isArray(content) ? content.filter((one) => !String(one).includes(":~deleted,")) : content;
    return [key, fields] as const;
  });
  return Object.fromEntries(kept);
}

test("each kind of key that can name a user is left in Redis by a trace of these tests", () => {
  const naming = KINDS.filter(
    ({ keys, holds, stays: why }) => why === undefined && (holds || /<(user|drop)>/.test(keys)),
  );
  const left = new Set(TRACES.map(({ kind }) => kind));
  expect(naming.map(({ keys }) => keys).filter((kind) => !left.has(kind))).toEqual([]);
});

test.each(["ada", "erin é"])("nothing names %s but what may stay, and what others have is as before", async (user) => {
  await fillOthers();
  const before = await contents();
  await fillUser(user);
  expect(await contents()).not.toEqual(before);
  const forget = forgetOn({ scripts: redis.scripts, nats });
  await forget(user, context);
  expect(await contents()).toEqual(before);
  expect(await redis.raw.zscore(TOMBSTONES_KEY, dropOf(user))).not.toBeNull();
  expect(await redis.raw.zrange(deletedKey(user), "0", "-1")).toContain(dropOf(user));
  await forget(user, context);
  expect(await contents()).toEqual(before);
});

test("a drop that only a byline or an actor tells of gets a tombstone, and leaves the homes", async () => {
  for (const { leave } of TRACES) await leave(redis.raw, "ada", "bob");
  await redis.raw.zadd(homeKey("bob"), 1, "by ada", 2, "remote drop of ada", 3, "of bob");
  await redis.raw.zadd(LOCAL_KEY, 1, "by ada", 3, "of bob");
  await forgetOn({ scripts: redis.scripts, nats })("ada", context);
  const [home, local] = [
    await redis.raw.zrange(homeKey("bob"), "0", "-1"),
    await redis.raw.zrange(LOCAL_KEY, "0", "-1"),
  ];
  for (const left of [home, local]) expect(left).toContain("of bob");
  for (const gone of ["by ada", "remote drop of ada"]) {
    expect(home).not.toContain(gone);
    expect(local).not.toContain(gone);
    expect(await redis.raw.zscore(TOMBSTONES_KEY, gone)).not.toBeNull();
  }
});

test("an erasure whose walks go on finding drops is not done", async () => {
  let found = 0;
  const leaveOne = () => redis.raw.set(`timeline:x:actor:further-${found++}`, "ada");
  await leaveOne();
  hookFailpoints(async (name) => {
    if (name === "timelines-walking") await leaveOne();
  });
  const ended = forgetOn({ scripts: redis.scripts, nats })("ada", context);
  await expect(ended).rejects.toMatchObject({ code: "unavailable", subject: "ada" });
});

// Invariant 4.
test("drops that the posts service goes on listing get tombstones before the walk", async () => {
  const drop = (drop_id: string) => ({
    ...{ drop_id, user_id: "ada", created_at: 5, visibility: Visibility.PUBLIC, deleted: false, recipients: [] },
    ...{ repost_of: "", repost_author: "", ...NAMES_NOBODY },
  });
  await redis.raw.zadd(homeKey("bob"), 5, "listed", 6, "of bob", 0, "~floor");
  const listed = async () => ({ drops: [drop("listed")], next: undefined });
  await forgetOn({ scripts: redis.scripts, nats, listed } as never)("ada", context);
  expect(await redis.raw.zrange(homeKey("bob"), "0", "-1")).toEqual(["~floor", "of bob"]);
});

// Invariant 4.
test("the recent unfollowers of others are complete after one of them is forgotten", async () => {
  const fences = fencesOn(redis.scripts);
  const unfollow = (follower: string, following: string) => ({ follower, following, version: 1, follows: false });
  await fences.changeEdges([
    unfollow("ada", "bob"),
    unfollow("ada", "cat"),
    unfollow("dan", "cat"),
    unfollow("dan", "ada"),
  ]);
  await forgetOn({ scripts: redis.scripts, nats })("ada", context);
  const left = async (author: string): Promise<string[]> => {
    const users: string[] = [];
    for await (const page of fences.recentUnfollowers(author, 0)) users.push(...page);
    return users;
  };
  expect([await left("bob"), await left("cat"), await left("ada")]).toEqual([[], ["dan"], []]);
  for (const author of ["bob", "cat", "ada"]) expect(await redis.raw.hget(edgesKey(author), "~floor")).toBe("1");
  expect(await redis.raw.exists(unfollowersKey("bob"), unfollowersKey("ada"))).toBe(0);
});

const POINTS = FAILPOINTS.filter((name) => name.startsWith("timelines-"));

// Invariant 3.
test.each(POINTS)("an erasure that broke off at %s is finished by the next attempt", async (point) => {
  await fillOthers();
  const before = await contents();
  await fillUser("ada");
  const forget = forgetOn({ scripts: redis.scripts, nats });
  let broken = 0;
  hookFailpoints(async (name) => {
    if (name === point && broken++ === 0) throw new Error("broken off");
  });
  await expect(forget("ada", context)).rejects.toThrow("broken off");
  await forget("ada", context);
  expect(await contents()).toEqual(before);
});

test("erasures of several users run beside each other, and each beside itself", async () => {
  await fillOthers();
  const before = await contents();
  const users = ["ada", "erin é", "bob"];
  for (const user of users) await fillUser(user);
  const forget = forgetOn({ scripts: redis.scripts, nats });
  await Promise.all([...users, ...users].map((user) => forget(user, context)));
  expect(await contents()).toEqual(before);
});

test("20 users who are forgotten at once share two walks, and one whose drops cannot be listed holds up no other", async () => {
  await fillOthers();
  const before = await contents();
  const users = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? `ada ${n}` : `https://far.example/users/${n}`));
  for (const user of users) await fillUser(user);
  const walked: string[][] = [];
  hookFailpoints(async (name, about) => {
    if (name === "timelines-walked") walked.push(about.map(String));
  });
  let isAway = true;
  const listed = async (user: string) => {
    if (isAway && user === users[7]) throw new AppError("unavailable", "the posts service is away", { subject: user });
    return NO_DROPS;
  };
  const forget = forgetOn({ scripts: redis.scripts, nats, listed });
  const ended = await Promise.allSettled(users.map((user) => forget(user, context)));
  expect(ended.flatMap(({ status }, at) => (status === "rejected" ? [at] : []))).toEqual([7]);
  expect(walked.flat().sort()).toEqual(users.filter((_, at) => at !== 7).sort());
  expect(walked.length).toBeLessThanOrEqual(2);
  isAway = false;
  await forget(users[7] as string, context);
  expect(await contents()).toEqual(before);
});

test("a user whose posts are not deleted yet is waited for, and so is the backlog", async () => {
  const steps: string[] = [];
  let asked = 0;
  const reports = async () => {
    steps.push("reports");
    return new Map([["posts", { done: steps.length > 2, left: 0 }]] as const);
  };
  const readBacklogStart = async () => {
    steps.push("backlog");
    return Date.now() + 3_000 + (asked++ === 0 ? -2_500 : 2_500);
  };
  const leavePulled = async () => void steps.push("leave");
  await forgetOn({ scripts: redis.scripts, nats, reports, readBacklogStart, leavePulled })("ada", context);
  expect(steps).toEqual(["leave", "reports", "reports", "backlog", "backlog"]);
});

test.each(["posts", "backlog"])("a process that stops while it waits for the %s gives the work back", async (what) => {
  const stopping = new AbortController();
  setTimeout(() => stopping.abort(), 50);
  const forget = forgetOn({
    ...{ scripts: redis.scripts, nats },
    reports: async () => new Map([["posts", { done: what !== "posts", left: 3 }]] as const),
    readBacklogStart: async () => 0,
  });
  const ended = forget("ada", { ...context, stopping: stopping.signal });
  await expect(ended).rejects.toMatchObject({ code: "unavailable", subject: undefined });
});

test("deleted drops that are too many to be held are asked for", async () => {
  const drops = Array.from({ length: 12_000 }, (_, at) => `d${at}`);
  const time = Date.now();
  const fences = fencesOn(redis.scripts);
  for (let at = 0; at < drops.length; at += 1_000)
    await fences.recordTombstones(drops.slice(at, at + 1_000).map((drop) => ({ drop, author: "ada", time })));
  const send = createSend(redis.scripts);
  for (const most of [1_000, 100_000]) {
    const { ownAmong } = await readOwnDrops(send, ["ada"], most);
    expect(await ownAmong(["x", ...drops, "y"])).toEqual(new Set(drops));
    expect(await ownAmong([])).toEqual(new Set());
  }
});

test("10,000 homes lose 10,000 drops, and keep all others", async () => {
  const [homes, size, dropCount] = [10_000, 80, 10_000];
  const fences = fencesOn(redis.scripts);
  const time = Date.now();
  for (let at = 0; at < dropCount; at += 1_000) {
    const some = Array.from({ length: 1_000 }, (_, one) => ({ drop: `ada-${at + one}`, author: "ada", time }));
    await fences.recordTombstones(some);
  }
  const entriesOf = (home: number) =>
    Array.from({ length: size }, (_, at) => [at, at % 2 === 0 ? `ada-${(home * 7 + at) % dropCount}` : `bob-${at}`]);
  for (let at = 0; at < homes; at += 500) {
    const pipeline = redis.raw.pipeline();
    for (let home = at; home < at + 500; home++) {
      pipeline.zadd(homeKey(`f${home}`), ...(entriesOf(home).flat() as [number, string]), 0, "~floor");
      pipeline.sadd(`timeline:x:hiders:f${home}`, "ada", "bob");
    }
    await pipeline.exec();
  }
  await forgetOn({ scripts: redis.scripts, nats })("ada", context);
  for (const home of [0, 1, 4_999, homes - 1]) {
    const others = entriesOf(home).filter(([, drop]) => String(drop).startsWith("bob"));
    expect(await redis.raw.zrange(homeKey(`f${home}`), "0", "-1")).toEqual([
      "~floor",
      ...others.map(([, drop]) => drop),
    ]);
  }
  const left = await Promise.all(Array.from({ length: homes }, (_, home) => redis.raw.zcard(homeKey(`f${home}`))));
  expect(new Set(left)).toEqual(new Set([size / 2 + 1]));
  const hiders = Array.from({ length: homes }, (_, home) => redis.raw.smembers(`timeline:x:hiders:f${home}`));
  expect(new Set((await Promise.all(hiders)).flat())).toEqual(new Set(["bob"]));
});

const dlq = (body: unknown, headers: Record<string, string> = {}) =>
  nats.publish({ subject: "dlq.poison.drop_created", id: `${Math.random()}`, body: JSON.stringify(body), headers });

test.each(["ada", "erin é"])(
  "dead letters, notifications and checks that name %s go, and others stay",
  async (user) => {
    const [, token] = idsOf(user);
    const notify = (to: string, body: object) =>
      nats.publish({ subject: `notify.user.${to}`, id: `${Math.random()}`, body: JSON.stringify(body) });
    await dlq({ drop_id: "d", user_id: user });
    await dlq({ edges: [{ follower_id: user }] });
    await dlq({ user_ids: ["x", user] });
    await dlq({ drop_id: "d", recipients: [user] });
    await dlq({}, { "Dlq-Subject": `edges.calm.${token}` });
    await dlq("not an object", { "Dlq-Msg-Id": `user_followed:x:${token}:3` });
    await dlq({ drop_id: "d", user_id: "other", body: `${user} wrote`, visibility: user, kind: user });
    await dlq({ user_id: "ada2" }, { "Dlq-Msg-Id": `user_followed:x:y:${token}`, "Dlq-Stream-Seq": token as string });
    await notify(token as string, { event: "new_drop", drop_id: "d" });
    await notify("other", { event: "new_drop", drop_id: "d", by: `x,${token}` });
    await notify("other", { event: "~hiding", user_id: user });
    await notify("other", { event: "new_drop", drop_id: user, by: "ada2" });
    await nats.publish({ subject: "checks.publication", id: `1 ${token}`, body: JSON.stringify({ user_id: user }) });
    await nats.publish({ subject: "checks.publication", id: `2 ${token}`, body: JSON.stringify({ user_id: "other" }) });
    await forgetOn({ scripts: redis.scripts, nats })(user, context);
    const left = async (stream: string) => (await nats.manager.streams.info(stream)).state.messages;
    expect([await left("DLQ"), await left("NOTIFY"), await left("CHECKS")]).toEqual([2, 1, 1]);
  },
);

test("a process that stops before it looks at the dead letters leaves them to another one", async () => {
  await dlq({ drop_id: "d", user_id: "ada" });
  const stopping = new AbortController();
  hookFailpoints(async (name) => {
    if (name === "timelines-walked") stopping.abort();
  });
  const ended = forgetOn({ scripts: redis.scripts, nats })("ada", { ...context, stopping: stopping.signal });
  await expect(ended).rejects.toMatchObject({ code: "unavailable" });
  expect((await nats.manager.streams.info("DLQ")).state.messages).toBe(1);
});

test("notifications that name the user go from all parts, whatever their number is", async () => {
  const streams = ["NOTIFY", ...[0, 1, 2, 3].map((part) => `NOTIFY-${part}`)];
  await applyTopology(nats.manager, { replicas: 1, notifyParts: 4 }, silent);
  try {
    for (const stream of streams) {
      const prefix = stream === "NOTIFY" ? "notify.user" : `notify.${stream.at(-1)}.user`;
      const notify = (to: string, body: object) =>
        nats.publish({ subject: `${prefix}.${to}`, id: `${Math.random()}`, body: JSON.stringify(body) });
      await notify("ada", { event: "new_drop", drop_id: "d" });
      await notify("bob", { event: "new_drop", drop_id: "d", by: "ada" });
      await notify("bob", { event: "new_drop", drop_id: "d", by: "bob" });
    }
    await forgetOn({ scripts: redis.scripts, nats })("ada", context);
    const left = streams.map(async (stream) => (await nats.manager.streams.info(stream)).state.messages);
    expect(await Promise.all(left)).toEqual([1, 1, 1, 1, 1]);
  } finally {
    for (const stream of streams.slice(1)) await nats.manager.streams.delete(stream);
  }
});

test("gateways are told first, and nothing of that is stored in the end", async () => {
  const told: unknown[] = [];
  const live = nats.connection.subscribe("live.user.fay", { callback: (_, message) => void told.push(message.json()) });
  await nats.connection.flush();
  await forgetOn({ scripts: redis.scripts, nats })("fay", context);
  await nats.connection.flush();
  live.unsubscribe();
  expect(told).toEqual([{ event: "~erased" }]);
  expect((await nats.manager.streams.info("NOTIFY")).state.messages).toBe(0);
});

test("users with a stream whose pages lose drops are told to read them again", async () => {
  const now = Date.now();
  await fencesOn(redis.scripts).recordTombstones([{ drop: "d", author: "gil", time: now }]);
  for (const user of ["reads", "örjan", "away"]) await redis.raw.zadd(homeKey(user), 1, "d", 2, "of bob");
  await redis.raw.zadd(homeKey("lacks it"), 2, "of bob");
  await redis.raw.sadd(pullsKey("pulls"), "~complete", "gil");
  for (const user of ["reads", "örjan", "lacks it", "pulls"]) await redis.raw.zadd(RECENT_KEY, now, encodeId(user));
  const told: [string, unknown][] = [];
  const callback = (_: unknown, message: Msg) => void told.push([message.subject, message.json()]);
  const live = nats.connection.subscribe("live.user.*", { callback });
  await nats.connection.flush();
  for (let times = 0; times < 2; times++) await forgetOn({ scripts: redis.scripts, nats })("gil", context);
  await nats.connection.flush();
  live.unsubscribe();
  const resets = told.filter(([, event]) => JSON.stringify(event) === '{"event":"reset","reason":"user_erased"}');
  expect(new Set(resets.map(([subject]) => subject))).toEqual(
    new Set(["reads", "örjan", "pulls"].map((user) => `live.user.${encodeId(user)}`)),
  );
  expect(resets).toHaveLength(3);
});
