import { expect, test } from "@jest/globals";
import { NOTIFY_WINDOW_MS } from "../../src/contracts/times.js";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { AppError } from "../../src/kernel/errors.js";
import { PUBLISHING_KEY, RECENT_KEY } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { DROP, type FanoutBench, followers, handle, logged, openFanout, work } from "../support/fanout.js";
import { openRegistry, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, edited, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();

const listen = (...users: string[]) => redis.raw.zadd(RECENT_KEY, ...users.flatMap((user) => [Date.now(), user]));

/** Hands an event over once, as the log stored it. */
const once = (bench: FanoutBench, event: TimelineEvent, time = Date.now()): Promise<void> =>
  bench.handlers.drops.single(logged(event, time), contextWith());

/** Hands events over in one batch. Returns how many are left to be handled alone. */
async function together(bench: FanoutBench, ...events: TimelineEvent[]): Promise<number> {
  const deliveries = events.map((event, index) => logged(event, Date.now(), index + 1));
  return (await bench.handlers.drops.batch(deliveries, contextWith())).length;
}

/** Returns the events that a user was sent about a drop, in order, and forgets them. */
function toldTo({ notified }: FanoutBench, user: string, drop = "d1"): string[] {
  return notified.flatMap(({ users, notification: { event, drop_id, ...fields } }) =>
    users.includes(user) && drop_id === drop ? `${event} ${"revision" in fields ? fields.revision : ""}`.trim() : [],
  );
}

/** Users told of edits, each as often as told. */
const toldOfEdits = ({ notified }: FanoutBench): string[] =>
  notified.flatMap(({ users, notification }) => (notification.event === "drop_edited" ? users : [])).sort();

const WAITS = { code: "unavailable", subject: "ada" };

// Invariant 3.
test("listeners whose home has the drop are told of its edit, in any order and again for each revision", async () => {
  const bench = openFanout(redis, followers(3));
  await listen("ada", "f0", "f1", "stranger");
  await handle(bench, created(DROP));
  for (const revision of [3, 2, 3]) await once(bench, edited("d1", "ada", revision));
  expect(toldTo(bench, "f1")).toEqual(["new_drop", "drop_edited 3", "drop_edited 2", "drop_edited 3"]);
  expect(new Set(toldOfEdits(bench))).toEqual(new Set(["ada", "f0", "f1"]));
  expect(bench.notified.at(-1)?.notification).toEqual({
    ...{ event: "drop_edited", drop_id: "d1", revision: 3, by: "ada" },
  });
});

test("whom a direct drop is not for, whoever has a repost only, and who has unfollowed is told of no edit", async () => {
  const world = followers(3);
  const bench = openFanout(redis, world);
  await listen("ada", "bob", "f0", "f1", "f2");
  world.follow("fan", "bob");
  await listen("fan");
  await handle(bench, created({ ...DROP, visibility: "direct", recipients: ["f0", "stranger"] }));
  await handle(bench, created({ ...DROP, drop_id: "d2" }));
  const repost = { ...DROP, drop_id: "r", user_id: "bob", repost_of: "d2", repost_author: "ada" };
  await handle(bench, created(repost));
  await handle(bench, unfollowed("f2", "ada", world.unfollow("f2", "ada")));
  for (const drop of ["d1", "d2"]) await once(bench, edited(drop, "ada"));
  expect(toldOfEdits(bench)).toEqual(["ada", "ada", "f0", "f0", "f1"]);
});

test("an edit before its drop, after the deletion, of more than ten minutes ago, or in a replay tells nobody", async () => {
  const bench = openFanout(redis, followers(1));
  await listen("f0");
  await once(bench, edited("d1", "ada"));
  await handle(bench, created(DROP));
  await once(bench, edited("d1", "ada"), Date.now() - NOTIFY_WINDOW_MS - 1);
  await handle(bench, deleted("d1", "ada"));
  await once(bench, edited("d1", "ada"));
  expect(toldTo(bench, "f0")).toEqual(["new_drop", "drop_deleted"]);
});

// Invariant 4.
test("an edit of a drop whose tombstone is set tells nobody, although homes still have it", async () => {
  const bench = openFanout(redis, followers(1));
  await listen("f0");
  await handle(bench, created(DROP));
  await bench.deps.fences.recordTombstones([{ drop: "d1", author: "ada", time: Date.now() }]);
  await once(bench, edited("d1", "ada"));
  expect(toldTo(bench, "f0")).toEqual(["new_drop"]);
});

test("an edit in the batch of its drop and of its deletion comes after the one and without the other", async () => {
  const bench = openFanout(redis, followers(1));
  await listen("f0");
  await handle(bench, created({ ...DROP, drop_id: "known" }));
  expect(await together(bench, edited("d1", "ada"), created(DROP))).toBe(0);
  expect(toldTo(bench, "f0")).toEqual(["new_drop", "drop_edited 2"]);
  expect(await together(bench, edited("d1", "ada", 3), deleted("d1", "ada"))).toBe(0);
  expect(toldTo(bench, "f0")).toEqual(["new_drop", "drop_edited 2", "drop_deleted"]);
});

/** A process whose new drops are written, and whose notifications fail. */
const unable = (deps: FanoutDeps): FanoutDeps => ({
  ...deps,
  notify: async () => {
    throw new AppError("unavailable", "away");
  },
});

test("an edit waits while a home has the drop and its user was not told of it, alone and in a batch", async () => {
  const world = followers(1);
  await listen("f0");
  const broken = openFanout(redis, world, { change: unable });
  await expect(once(broken, created(DROP))).rejects.toMatchObject({ message: "away" });
  expect(await redis.raw.zscore(homeKey("f0"), "d1")).not.toBeNull();
  const bench = openFanout(redis, world);
  await expect(once(bench, edited("d1", "ada"))).rejects.toMatchObject(WAITS);
  await handle(bench, created({ ...DROP, drop_id: "d2" }));
  expect(await together(bench, edited("d1", "ada"), edited("d2", "ada"), created({ ...DROP, drop_id: "d3" }))).toBe(2);
  expect([toldTo(bench, "f0"), toldTo(bench, "f0", "d3")]).toEqual([[], ["new_drop"]]);
  await handle(bench, created(DROP));
  await once(bench, edited("d1", "ada"));
  expect(toldTo(bench, "f0")).toEqual(["new_drop", "drop_edited 2"]);
  expect(await redis.raw.exists(PUBLISHING_KEY)).toBe(0);
});

test("an edit waits for the last job of its drop, but for none that may notify nobody any more", async () => {
  const bench = openFanout(redis, followers(5), { pageSize: 2 });
  await listen("f0", "f4");
  await handle(bench, created(DROP));
  const [last] = bench.jobs.splice(2);
  await work(bench);
  await expect(once(bench, edited("d1", "ada"))).rejects.toMatchObject(WAITS);
  bench.jobs.push(...(last === undefined ? [] : [last]));
  await work(bench);
  await once(bench, edited("d1", "ada"));
  expect([toldTo(bench, "f0"), toldTo(bench, "f4")]).toEqual([
    ["new_drop", "drop_edited 2"],
    ["new_drop", "drop_edited 2"],
  ]);
  // Its publication broke off so long ago.
  await redis.raw.zadd(PUBLISHING_KEY, Date.now() - NOTIFY_WINDOW_MS - 1, "d1");
  await once(bench, edited("d1", "ada", 3));
  expect(toldTo(bench, "f4")).toEqual(["new_drop", "drop_edited 2", "drop_edited 3"]);
});

test("imports and replays are not noted as being published", async () => {
  const bench = openFanout(redis, followers(5), { pageSize: 2 });
  await handle(bench, created({ ...DROP, created_at: Date.now() - 86_400_000 }));
  expect([bench.jobs.length, await redis.raw.exists(PUBLISHING_KEY)]).toEqual([3, 0]);
});

test("a thousand edits of one drop are one look for listeners a batch, and tell the newest revisions", async () => {
  let looks = 0;
  const bench = openFanout(redis, followers(2), {
    change: (deps) => ({
      ...deps,
      listenersAmong: (audiences) => {
        looks++;
        return deps.listenersAmong(audiences);
      },
    }),
  });
  await listen("f0");
  for (const drop_id of ["d1", "d2"]) await handle(bench, created({ ...DROP, drop_id }));
  looks = 0;
  const edits = Array.from({ length: 1_000 }, (_, index) => edited("d1", "ada", index + 2));
  expect(await together(bench, ...edits, edited("d2", "ada"))).toBe(0);
  expect(looks).toBe(1);
  expect(toldTo(bench, "f0").slice(1)).toEqual(Array.from({ length: 4 }, (_, index) => `drop_edited ${998 + index}`));
  expect(toldTo(bench, "f0", "d2")).toEqual(["new_drop", "drop_edited 2"]);
});

test("of many followers those who listen are looked at, and no list of followers is read", async () => {
  let pages = 0;
  const bench = openFanout(redis, followers(9), {
    pageSize: 2,
    change: (deps) => ({
      ...deps,
      readFollowers: (...asked) => {
        pages++;
        return deps.readFollowers(...asked);
      },
    }),
  });
  await listen("f1", "f7", "stranger");
  await handle(bench, created(DROP));
  await work(bench);
  const reads = pages;
  await once(bench, edited("d1", "ada"));
  expect(toldOfEdits(bench)).toEqual(["f1", "f7"]);
  expect(pages - reads).toBeLessThanOrEqual(1);
});

test("of a pulled author's drop those listeners are told whose home reaches down to it", async () => {
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  const world = followers(9);
  const bench = openFanout(redis, world, { pageSize: 2, change: (deps) => ({ ...deps, authorStates: registry }) });
  await registry.choose("ada", "pull");
  await step(bench, registry);
  await listen("ada", "f1", "f2", "stranger");
  await redis.raw.zadd(homeKey("f1"), DROP.created_at + 1, "~floor");
  await once(bench, edited("d1", "ada"));
  expect(bench.notified).toEqual([]);
  world.post(DROP);
  await handle(bench, created(DROP));
  await once(bench, edited("d1", "ada"));
  expect(toldOfEdits(bench)).toEqual(["ada", "f2"]);
  await handle(bench, deleted("d1", "ada"));
  await once(bench, edited("d1", "ada", 3));
  expect(toldOfEdits(bench)).toEqual(["ada", "f2"]);
});

test("of a pulled author's reply to somebody else those are told who follow both", async () => {
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  const world = followers(9);
  world.follow("f1", "zoe");
  const bench = openFanout(redis, world, {
    pageSize: 2,
    judgesReplies: true,
    readHidden: async (user) => world.hiddenFrom(user),
    change: (deps) => ({ ...deps, authorStates: registry }),
  });
  await registry.choose("ada", "pull");
  await step(bench, registry);
  await listen("f1", "f2");
  const reply = { ...DROP, reply_to: "parent", reply_to_author: "zoe" };
  world.post(reply);
  await handle(bench, created(reply));
  await once(bench, edited("d1", "ada"));
  expect([toldTo(bench, "f1"), toldTo(bench, "f2")]).toEqual([["new_drop", "drop_edited 2"], []]);
});

test("who mutes the author is told of no edit", async () => {
  const world = followers(2);
  const bench = openFanout(redis, world, { readHidden: async (user) => world.hiddenFrom(user) });
  await listen("f0", "f1");
  await handle(bench, created(DROP));
  world.mute("f0", "ada");
  await handle(bench, { channel: "user_muted", payload: { user_id: "f0", target_id: "ada", version: 1 } });
  // The home may be read again before the change is applied.
  await redis.raw.zadd(homeKey("f0"), DROP.created_at, "d1");
  await once(bench, edited("d1", "ada"));
  expect(toldOfEdits(bench)).toEqual(["f1"]);
});
