import { expect, test } from "@jest/globals";
import type { FanoutCompleted } from "../../src/contracts/fanout.js";
import { createNotify } from "../../src/fanout/notify.js";
import { createComplete, createPublishNotifications, createQueueJobs } from "../../src/fanout/publish.nats.js";
import { DAY, MINUTE } from "../../src/kernel/time.js";
import type { Message, PublishAll } from "../../src/platform/nats/publish.js";
import { deletedDropKey } from "../../src/state/keys.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { DROP, followers, handle, logged, openFanout, work } from "../support/fanout.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, received, unfollowed } from "../support/timeline-events.js";
import { held, hidesNobody, homeKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);

test("one page of followers is written at once; more pages become jobs, and the last one done completes the fan-out once", async () => {
  const small = openFanout(redis, followers(3), { pageSize: 3 });
  await handle(small, created({ ...DROP, created_at: 1_000 }), 2_000);
  expect([small.jobs.length, small.completed]).toEqual([
    0,
    [expect.objectContaining({ drop_id: "d1", recipients: 4, chunks: 1, admitted_at: 2_000 })],
  ]);
  const [{ created_at, landed_at, lag_ms }] = small.completed as [FanoutCompleted];
  expect([created_at < 2_000, lag_ms]).toEqual([true, landed_at - created_at]);
  const large = openFanout(redis, followers(7), { pageSize: 3 });
  await handle(large, created({ ...DROP, drop_id: "d2", created_at: 1_000 }), 2_000);
  expect(large.jobs.map(({ user_ids }) => user_ids.length)).toEqual([4, 3, 1]);
  expect(large.completed).toEqual([]);
  await work(large);
  expect(large.completed).toEqual([expect.objectContaining({ drop_id: "d2", recipients: 8, chunks: 3 })]);
  for (let index = 0; index < 7; index++) expect(await idsOf(homeKey(`f${index}`))).toContain("d2");
});

test("followers are read once a generation; a follow makes the next fan-out read them again", async () => {
  const world = followers(2);
  let asked = 0;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readFollowers: (author, token) => {
        asked++;
        return deps.readFollowers(author, token);
      },
    }),
  });
  for (const drop_id of ["d1", "d2", "d3"]) await handle(bench, created({ ...DROP, drop_id }));
  expect(asked).toBe(1);
  world.follow("late", "ada");
  await handle(bench, followed("late", "ada", 1));
  await handle(bench, created({ ...DROP, drop_id: "d4" }));
  expect([asked, await idsOf(homeKey("late"))]).toEqual([2, ["d4"]]);
});

// Invariant 4.
test("a follower list read before an unfollow neither brings the drop back nor notifies the unfollower", async () => {
  const world = followers(2);
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readFollowers: async (author, token) => {
        const stale = await deps.readFollowers(author, token);
        world.unfollow("f0", "ada");
        await handle(openFanout(redis, world), unfollowed("f0", "ada", 2));
        return stale;
      },
    }),
  });
  await handle(bench, created(DROP), Date.now());
  expect([await idsOf(homeKey("f0")), await idsOf(homeKey("f1"))]).toEqual([[], ["d1"]]);
  expect(bench.notified.flatMap(({ users }) => users).sort()).toEqual(["ada", "f1"]);
});

// Invariant 3.
test("a follow between the look-up of unfollowers and the removal wins", async () => {
  const world = followers(2);
  world.post(DROP);
  const elsewhere = openFanout(redis, world);
  await handle(elsewhere, unfollowed("f0", "ada", 2));
  let back = false;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      fences: {
        ...deps.fences,
        unfollowedAmong: async (author, users) => {
          const left = await deps.fences.unfollowedAmong(author, users);
          if (!back) await handle(elsewhere, followed("f0", "ada", 3));
          back = true;
          return left;
        },
      },
      writer: {
        ...deps.writer,
        addToHomes: async (all) => {
          const isTaken = await deps.writer.addToHomes(all);
          // As an edge that changes meanwhile does: the followers that were read may be those of yesterday.
          await deps.fences.renewGenerations(["ada"]);
          return isTaken;
        },
      },
    }),
  });
  await handle(bench, created(DROP), Date.now());
  expect([back, await idsOf(homeKey("f0")), await idsOf(homeKey("f1"))]).toEqual([true, ["d1"], ["d1"]]);
});

// Invariant 4.
test("a deletion between the write and the look for tombstones wins", async () => {
  const world = followers(1);
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      writer: {
        ...deps.writer,
        addToHomes: async (all) => {
          await handle(openFanout(redis, world), deleted("d1", "ada"));
          return deps.writer.addToHomes(all);
        },
      },
    }),
  });
  await handle(bench, created(DROP), Date.now());
  for (const key of ["timeline:local", "timeline:global", homeKey("ada"), homeKey("f0")])
    expect(await idsOf(key)).toEqual([]);
  expect(bench.notified).toEqual([]);
});

test("`active` writes to those whose timeline was read, and to the shared ones always", async () => {
  const bench = openFanout(redis, followers(2), { activeOnly: true });
  await redis.raw.zadd(homeKey("f1"), 0, "~floor");
  await handle(bench, created(DROP));
  expect(await Promise.all([idsOf(homeKey("f0")), idsOf(homeKey("f1")), idsOf("timeline:local")])).toEqual([
    [],
    ["d1"],
    ["d1"],
  ]);
});

test("a follow backfills everything above the floor and nothing below; an unfollow removes it and the author's deleted drops", async () => {
  const world = new World();
  for (let time = 1; time <= 50; time++) world.post({ drop_id: `a${time}`, user_id: "ada", created_at: time });
  world.post({ drop_id: "b1", user_id: "bob", created_at: 45 });
  const bench = openFanout(redis, world, { pageSize: 7 });
  await redis.raw.zadd(homeKey("rik"), 20, "~floor", 45, "b1", 46, "missed");
  world.follow("rik", "ada");
  await handle(bench, followed("rik", "ada", 1));
  expect(await idsOf(homeKey("rik"))).toHaveLength(32);
  expect(await idsOf(homeKey("rik"))).not.toContain("a20");
  world.unfollow("rik", "ada");
  await handle(bench, deleted("missed", "ada"));
  expect(await idsOf(homeKey("rik"))).toContain("missed");
  await handle(bench, unfollowed("rik", "ada", 2));
  expect(await held(redis.raw, homeKey("rik"))).toEqual({ floor: 20, entries: [["b1", 45]] });
  const admittedAt = expect.any(Number);
  expect(bench.applied).toEqual([
    { event: "user_followed", admittedAt },
    { event: "user_unfollowed", admittedAt },
  ]);
});

test("a follow of more drops than a timeline holds keeps the newest and raises the floor", async () => {
  const world = new World();
  for (let time = 1; time <= 50; time++) world.post({ drop_id: `a${time}`, user_id: "ada", created_at: time });
  const bench = openFanout(redis, world, { maxEntries: 20 });
  await redis.raw.zadd(homeKey("rik"), 0, "~floor");
  world.follow("rik", "ada");
  await handle(bench, followed("rik", "ada", 1));
  const { entries, floor } = await held(redis.raw, homeKey("rik"));
  expect(entries.map(([, time]) => time)).toEqual(
    Array.from({ length: 50 - (floor as number) }, (_, index) => 50 - index),
  );
  expect(entries.length).toBeGreaterThanOrEqual(19);
});

// Invariant 3.
test("an unfollow that is handled while a follow is being backfilled wins", async () => {
  const world = new World();
  world.post({ drop_id: "a1", user_id: "ada", created_at: 5 });
  let once = true;
  const bench = openFanout(redis, world, {
    change: (deps) => ({
      ...deps,
      readAuthorDrops: async (author, below, of) => {
        const page = await deps.readAuthorDrops(author, below, of);
        if (once) {
          once = false;
          await handle(openFanout(redis, world), unfollowed("rik", "ada", 2));
        }
        return page;
      },
    }),
  });
  await handle(bench, followed("rik", "ada", 1));
  expect([once, await idsOf(homeKey("rik"))]).toEqual([false, []]);
});

// Invariant 5.
test("a follow and an unfollow make a rebuild of the home that is under way start over", async () => {
  const world = new World();
  world.post({ drop_id: "a1", user_id: "ada", created_at: 5 });
  const bench = openFanout(redis, world);
  for (const [at, event] of [followed, unfollowed].entries()) {
    await redis.raw.zadd(homeKey("rik"), -7, "~floor", 3, "held");
    await handle(bench, event("rik", "ada", at + 1));
    expect((await held(redis.raw, homeKey("rik"))).floor).toBeUndefined();
  }
});

test("the id of a deleted drop keeps its time, also where it was in no home", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, received({ drop_id: "r1", created_at: 5 }));
  await handle(bench, deleted("r1"));
  expect([await idsOf("timeline:global"), await redis.raw.get(deletedDropKey("r1"))]).toEqual([[], "5"]);
});

test("an edge to oneself changes nothing", async () => {
  const world = new World();
  world.post({ drop_id: "own", user_id: "ada", created_at: 1 });
  const bench = openFanout(redis, world);
  await handle(bench, created({ ...DROP, drop_id: "own" }));
  await handle(bench, unfollowed("ada", "ada", 1));
  expect(await idsOf(homeKey("ada"))).toEqual(["own"]);
});

test("a remote drop goes to global and the actor's followers, not to local; a deletion without an author removes it everywhere", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, received({ drop_id: "r1", created_at: 5, user_id: "ada" }));
  await handle(bench, received({ drop_id: "r2", created_at: 6 }));
  expect(
    await Promise.all([idsOf("timeline:global"), idsOf("timeline:local"), idsOf(homeKey("f0")), idsOf(homeKey("ada"))]),
  ).toEqual([["r2", "r1"], [], ["r1"], []]);
  await handle(bench, deleted("r1"));
  await handle(bench, deleted("r2"));
  expect(await Promise.all([idsOf("timeline:global"), idsOf(homeKey("f0"))])).toEqual([[], []]);
});

test("the author of a remote drop is remembered as long as the drop may stand in somebody's home", async () => {
  const bench = openFanout(redis, followers(1));
  await handle(bench, received({ drop_id: "r1", created_at: 5, user_id: "ada" }));
  const [actor] = await redis.raw.keys("timeline:x:actor:*");
  // Written one after the other, for the same time.
  const [ofActor, ofHome] = await Promise.all([redis.raw.pttl(actor as string), redis.raw.pttl(homeKey("f0"))]);
  expect(ofActor).toBeGreaterThan(ofHome - 1_000);
});

// Invariant 4.
test("a home that was not read for longer than tombstones are kept is rebuilt before it is read again", async () => {
  const world = followers(1);
  const { store } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const read = () => store.read({ key: homeKey("f0"), direction: "older", from: undefined, count: 10 });
  await handle(openFanout(redis, world), received({ drop_id: "r1", user_id: "ada", created_at: 5 }));
  await hidesNobody(redis.raw, homeKey("f0"));
  await redis.raw.zadd(homeKey("f0"), 0, "~floor");
  expect((await read()).floor).toBe(0);
  const whole = await redis.raw.pttl(homeKey("f0"));
  await redis.raw.pexpire(homeKey("f0"), whole - 6 * DAY);
  expect((await read()).floor).toBe(0);
  expect(await redis.raw.pttl(homeKey("f0"))).toBeGreaterThan(whole - MINUTE);
  // A deletion that named no author, and whose tombstone is forgotten by now, may have passed it by.
  await redis.raw.pexpire(homeKey("f0"), whole - 7 * DAY - MINUTE);
  expect((await read()).floor).toBeUndefined();
});

test("an event older than the window of NOTIFY notifies nobody", async () => {
  const bench = openFanout(redis, followers(1));
  const drop = { ...DROP, created_at: Date.now() - 12 * 60_000 };
  await handle(bench, created(drop), Date.now() - 11 * 60_000);
  await handle(bench, created({ ...drop, drop_id: "d2" }), Date.now() - 9 * 60_000);
  expect(bench.notified.map(({ notification }) => notification)).toEqual([
    { event: "new_drop", drop_id: "d2", created_at: drop.created_at, by: "ada" },
  ]);
});

test("a failed write fails the handling: nobody is notified, nothing is completed", async () => {
  const bench = openFanout(redis, followers(1), {
    change: (deps) => ({ ...deps, writer: { ...deps.writer, addToHomes: () => Promise.reject(new Error("no")) } }),
  });
  await expect(bench.handlers.drops.single(logged(created(DROP), Date.now()), contextWith())).rejects.toThrow("no");
  expect([bench.notified, bench.completed]).toEqual([[], []]);
});

test("a malformed body is invalid, and the error names the field", async () => {
  const bench = openFanout(redis, new World());
  await expect(bench.handlers.drops.single(deliveryOf({ json: {} }), contextWith())).rejects.toMatchObject({
    code: "invalid",
  });
  await expect(
    bench.handlers.graph.single(deliveryOf({ subject: "graph.followed", json: {} }), contextWith()),
  ).rejects.toMatchObject({ code: "invalid" });
  await expect(
    bench.handlers.jobs.single(deliveryOf({ subject: "fanout.job.add", json: {} }), contextWith()),
  ).rejects.toMatchObject({ code: "invalid" });
});

test("only users with a stream, or with one until recently, are notified, each under a message id of its own", async () => {
  const messages: Message[] = [];
  const publish: PublishAll = async (more) => {
    messages.push(...more);
    return more.map((_, index) => ({ stream: "NOTIFY", seq: index + 1, duplicate: false }));
  };
  await redis.raw.zadd("sse_recent:users", Date.now(), "bob", Date.now(), "=w6k", Date.now() - 700_000, "gone");
  const bench = openFanout(redis, followers(3), {
    pageSize: 1,
    change: (deps) => ({
      ...deps,
      queue: createQueueJobs(publish),
      complete: createComplete(publish, (all) => new Set(all)),
    }),
  });
  const notify = createNotify({ ...bench.deps, publish: createPublishNotifications(publish) });
  const notification = { event: "drop_deleted", drop_id: "d.1" } as const;
  await notify([
    { users: ["bob", "gone", "never", "é", ...Array.from({ length: 2_500 }, (_, index) => `u${index}`)], notification },
  ]);
  expect(messages.map(({ subject }) => subject)).toEqual(["notify.user.bob", "notify.user.=w6k"]);
  expect(new Set(messages.map(({ id }) => id)).size).toBe(2);
  expect(JSON.parse(String(messages[0]?.body))).toEqual({ event: "drop_deleted", drop_id: "d.1" });
  messages.length = 0;
  await handle(bench, created(DROP));
  expect(messages.map(({ subject }) => subject.replace(/\d+$/, "<minute>"))).toEqual(
    Array(3).fill("fanout.job.add.<minute>"),
  );
  expect(new Set(messages.map(({ id }) => id)).size).toBe(3);
});

test("a publication that is chosen has its check stored with its completion, under one message id and trace", async () => {
  const messages: Message[] = [];
  const complete = createComplete(
    async (more) => {
      messages.push(...more);
      return more.map((_, index) => ({ stream: "COMPLETIONS", seq: index + 1, duplicate: false }));
    },
    (all) => new Set(all.filter(({ drop_id }) => drop_id === "chosen")),
  );
  const times = { created_at: 1, admitted_at: 2, landed_at: 3, lag_ms: 1 };
  const of = (drop_id: string) => ({
    completed: { event: "drop_created", drop_id, user_id: "ada", recipients: 1, chunks: 1, ...times },
    trace: { traceparent: drop_id },
  });
  await complete([of("chosen"), of("other")]);
  const [completion, check, other] = messages;
  expect(messages.map(({ subject }) => subject)).toEqual([
    "completed.fanout",
    "checks.publication",
    "completed.fanout",
  ]);
  expect({ ...check, subject: "" }).toEqual({ ...completion, subject: "" });
  expect([other?.id, other?.headers]).toEqual(["drop_created:other", { traceparent: "other" }]);
});

test("a remote drop that is not public is in no shared timeline, and reaches homes by the rules of its visibility", async () => {
  const world = followers(2);
  world.follow("stranger", "eve");
  const remote = { user_id: "ada", created_at: 1_000, recipients: ["f1", "stranger", "ada"] } as const;
  for (const visibility of ["public", "unlisted", "followers", "direct"] as const)
    await handle(openFanout(redis, world), received({ ...remote, drop_id: visibility, visibility }));
  for (const visibility of ["followers", "direct"] as const)
    await handle(
      openFanout(redis, world),
      received({ drop_id: `nobody's ${visibility}`, created_at: 1_000, visibility }),
    );
  expect(await idsOf("timeline:global")).toEqual(["public"]);
  expect(await idsOf("timeline:local")).toEqual([]);
  expect(await idsOf(homeKey("f0"))).toEqual(["unlisted", "public", "followers"]);
  expect(await idsOf(homeKey("f1"))).toEqual(["unlisted", "public", "followers", "direct"]);
  for (const user of ["ada", "stranger"]) expect(await idsOf(homeKey(user))).toEqual([]);
});

test("a direct remote drop that is handled again is removed from the home of a user who unfollowed its author", async () => {
  const world = followers(1);
  const direct = received({
    drop_id: "d1",
    user_id: "ada",
    created_at: 1_000,
    visibility: "direct",
    recipients: ["f0"],
  });
  await handle(openFanout(redis, world), followed("f0", "ada", 1));
  await handle(openFanout(redis, world), direct);
  expect(await idsOf(homeKey("f0"))).toEqual(["d1"]);
  world.unfollow("f0", "ada");
  await handle(openFanout(redis, world), unfollowed("f0", "ada", 2));
  await handle(openFanout(redis, world), direct);
  expect(await idsOf(homeKey("f0"))).toEqual([]);
});

// Invariant 5.
test("a follow brings no drop from further ahead than an event may be", async () => {
  const world = new World();
  const now = Date.now();
  for (let index = 0; index < 250; index++)
    world.post({ ...DROP, drop_id: `ahead${index}`, created_at: Date.parse("2100-01-01T00:00:00Z") + index });
  world.post({ ...DROP, created_at: now }, { ...DROP, drop_id: "soon", created_at: now + 4 * MINUTE });
  const bench = openFanout(redis, world);
  await handle(bench, followed("late", "ada", world.follow("late", "ada")));
  expect(await idsOf(homeKey("late"))).toEqual(["soon", "d1"]);
});
