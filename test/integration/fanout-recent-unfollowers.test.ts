import { expect, test } from "@jest/globals";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { silent } from "../../src/kernel/logger.js";
import { MINUTE } from "../../src/kernel/time.js";
import { createFences } from "../../src/state/fences/fences.js";
import { unfollowersKey } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { type FanoutBench, handle, logged, openFanout, work } from "../support/fanout.js";
import { historyOf } from "../support/memory-upstreams.js";
import { adaptersOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import { World } from "../support/world.js";

const redis = redisOfFile();

const DROP = { drop_id: "d1", user_id: "ada", visibility: "followers", created_at: 1_000 } as const;
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);

/** Called at once: a step has a reply that is awaited. */
const NO_STEPS = new Set(["recentUnfollowers", "retentionStart"]);

/** A process at whose `at`-th step something else happens first; `reached` tells whether there was such a step. */
function interrupted(world: World, at: number, what: () => Promise<void>): { bench: FanoutBench; reached(): boolean } {
  let steps = 0;
  const before = async (): Promise<void> => {
    if (steps++ === at) await what();
  };
  const watched = <T extends object>(port: T): T =>
    Object.fromEntries(
      Object.entries(port).map(([name, call]) => [name, NO_STEPS.has(name) ? call : stepping(call, before)]),
    ) as T;
  const change = (deps: FanoutDeps): FanoutDeps => ({
    ...deps,
    writer: watched(deps.writer),
    fences: {
      ...watched(deps.fences),
      async *recentUnfollowers(author, since) {
        await before();
        yield* deps.fences.recentUnfollowers(author, since);
      },
    },
    readFollowers: stepping(deps.readFollowers, before),
    readAuthorDrops: stepping(deps.readAuthorDrops, before),
  });
  return { bench: openFanout(redis, world, { change }), reached: () => steps > at };
}

const stepping =
  <A extends unknown[], R>(call: (...args: A) => Promise<R>, before: () => Promise<void>) =>
  async (...args: A): Promise<R> => {
    await before();
    return call(...args);
  };

/** The world as it is in the end, before any of these events is handled, and a process that knows it from before. */
interface Setting {
  readonly world: World;
  readonly elsewhere: FanoutBench;
  readonly events: Readonly<Record<string, TimelineEvent>>;
}

/** bob has had ada's drop in his home; she deletes it and he unfollows her, and both are told after they are done. */
async function unfollowAndDeletion(): Promise<Setting> {
  const world = new World();
  const elsewhere = openFanout(redis, world);
  world.post(DROP);
  await handle(elsewhere, followed("bob", "ada", world.follow("bob", "ada")));
  await handle(elsewhere, created(DROP));
  world.remove("d1");
  const left = unfollowed("bob", "ada", world.unfollow("bob", "ada"));
  return { world, elsewhere, events: { creation: created(DROP), unfollow: left, deletion: deleted("d1", "ada") } };
}

/** As before, but bob follows again; the process elsewhere has read ada's followers while he did not. */
async function backAgain(): Promise<Setting> {
  const { world, events } = await unfollowAndDeletion();
  const fresh = openFanout(redis, world);
  await handle(fresh, created({ ...DROP, drop_id: "other" }));
  const back = followed("bob", "ada", world.follow("bob", "ada"));
  return { world, elsewhere: fresh, events: { ...events, back } };
}

const SETTINGS = { "an unfollow": unfollowAndDeletion, "an unfollow and a follow": backAgain };
type SettingName = keyof typeof SETTINGS;

/** Two events, one handled at a step of the other, and the others before both or after both. */
interface Order {
  readonly outer: string;
  readonly inner: string;
  readonly others: "before" | "after";
}

async function ordersOf(name: SettingName): Promise<Order[]> {
  const names = Object.keys((await SETTINGS[name]()).events);
  const pairs = names.flatMap((outer) => names.filter((inner) => inner !== outer).map((inner) => ({ outer, inner })));
  return pairs.flatMap((pair) => (["before", "after"] as const).map((others) => ({ ...pair, others })));
}

/** Handles all events of a setting; false where the outer one has no such step. */
async function handledIn(name: SettingName, { outer, inner, others }: Order, at: number): Promise<boolean> {
  await redis.raw.flushall();
  const { world, elsewhere, events } = await SETTINGS[name]();
  const rest = Object.keys(events).filter((one) => one !== outer && one !== inner);
  const handleRest = async () => {
    for (const one of rest) await handle(elsewhere, events[one] as TimelineEvent);
  };
  const { bench, reached } = interrupted(world, at, () => handle(elsewhere, events[inner] as TimelineEvent));
  if (others === "before") await handleRest();
  await handle(bench, events[outer] as TimelineEvent);
  if (others === "after") await handleRest();
  return reached();
}

// Invariant 4.
test.each(Object.keys(SETTINGS) as SettingName[])(
  "a deletion beside %s leaves nothing, whichever step of one the other interrupts",
  async (name) => {
    const left: unknown[] = [];
    let count = 0;
    for (const order of await ordersOf(name)) {
      for (let at = 0; await handledIn(name, order, at); at++) {
        count++;
        if ((await idsOf(homeKey("bob"))).includes("d1")) left.push({ ...order, at });
      }
    }
    expect(left).toEqual([]);
    expect(count).toBeGreaterThan(60);
  },
);

// Invariant 4.
test("a deletion reaches recent unfollowers of a large author, and the followers by jobs", async () => {
  const world = new World();
  const bench = openFanout(redis, world, { pageSize: 2 });
  const readers = Array.from({ length: 5 }, (_, number) => `reader-${number}`);
  for (const reader of readers) await handle(bench, followed(reader, "ada", world.follow(reader, "ada")));
  await handle(bench, created(DROP));
  await work(bench);
  for (const reader of readers.slice(0, 2))
    await handle(bench, unfollowed(reader, "ada", world.unfollow(reader, "ada")));
  // As if the unfollows had been handled when the drop was gone from the author's list, and not yet dead.
  await redis.raw.zadd(homeKey("reader-0"), 1_000, "d1");
  await redis.raw.zadd(homeKey("reader-1"), 1_000, "d1");
  await handle(bench, deleted("d1", "ada"));
  await work(bench);
  for (const reader of readers) expect([reader, await idsOf(homeKey(reader))]).toEqual([reader, []]);
  // Told is who still had it, and nobody else.
  const told = bench.notified.filter(({ notification }) => notification.event === "drop_deleted");
  expect(told.flatMap(({ users }) => users).sort()).toEqual([...readers, "ada"].sort());
});

// Invariant 4.
test.each(["followers", "direct"] as const)(
  "a publication (%s) that broke off after the write is removed from the home of a user who unfollowed meanwhile",
  async (visibility) => {
    const world = new World();
    const drop = { ...DROP, visibility, recipients: visibility === "direct" ? ["bob", "eve"] : [] };
    world.follow("bob", "ada");
    world.follow("eve", "ada");
    const elsewhere = openFanout(redis, world);
    const broken = openFanout(redis, world, {
      change: (deps) => ({
        ...deps,
        writer: {
          ...deps.writer,
          addToHomes: async (...args) => {
            await handle(elsewhere, unfollowed("bob", "ada", world.unfollow("bob", "ada")));
            await deps.writer.addToHomes(...args);
            throw new Error("the process dies");
          },
        },
      }),
    });
    const delivery = logged(created(drop), Date.now());
    await expect(broken.handlers.drops.single(delivery, contextWith())).rejects.toThrow("the process dies");
    expect(await idsOf(homeKey("bob"))).toEqual(["d1"]);
    await elsewhere.handlers.drops.single(delivery, contextWith());
    expect([await idsOf(homeKey("bob")), await idsOf(homeKey("eve"))]).toEqual([[], ["d1"]]);
  },
);

// Invariant 4.
test("a deletion in a batch reaches recent unfollowers, whose homes their unfollow has not looked through for it", async () => {
  const { world, elsewhere, events } = await unfollowAndDeletion();
  await handle(elsewhere, events["unfollow"] as TimelineEvent);
  expect(await idsOf(homeKey("bob"))).toEqual(["d1"]);
  world.follow("eve", "ada");
  await handle(elsewhere, created({ ...DROP, drop_id: "next" }));
  const batch = [logged(events["deletion"] as TimelineEvent, Date.now())];
  expect(await elsewhere.handlers.drops.batch(batch, contextWith())).toEqual([]);
  expect([await idsOf(homeKey("bob")), await idsOf(homeKey("eve"))]).toEqual([[], ["next"]]);
});

test("a publication admitted after the last change of its author's followers reads no recent unfollowers; a deletion does", async () => {
  const world = new World();
  const asked: string[] = [];
  const bench = openFanout(redis, world, {
    change: ({ fences, ...deps }) => ({
      ...deps,
      fences: {
        ...fences,
        recentUnfollowers: (author, since) => {
          asked.push(`since ${since}`);
          return fences.recentUnfollowers(author, since);
        },
      },
    }),
  });
  await handle(bench, unfollowed("bob", "ada", world.unfollow("bob", "ada")));
  const later = Date.now() + 3 * MINUTE;
  await handle(bench, created(DROP), later);
  expect(asked).toEqual([]);
  await handle(bench, created(DROP), later - 3 * MINUTE);
  await handle(bench, deleted("d1", "ada"), later);
  expect(asked).toEqual([`since ${later - 4 * MINUTE}`, "since 0"]);
});

// Invariant 4.
test("a user who unfollowed and follows again keeps a drop that is handled again", async () => {
  const world = new World();
  const bench = openFanout(redis, world);
  await handle(bench, unfollowed("bob", "ada", world.unfollow("bob", "ada")));
  world.post(DROP);
  await handle(bench, followed("bob", "ada", world.follow("bob", "ada")));
  await handle(bench, created(DROP));
  expect(await idsOf(homeKey("bob"))).toEqual(["d1"]);
});

test("recent unfollowers are read page by page from a time on; one recorded again meanwhile is not skipped", async () => {
  const store = adaptersOn(redis.scripts, { maxEntries: 10 }).fenceStore;
  const fences = createFences({ store, readHistory: historyOf([]), log: silent });
  const leave = (follower: string) => store.changeEdges([{ follower, following: "ada", version: 1, follows: false }]);
  const names = Array.from({ length: 2_300 }, (_, number) => `unfollower-${number}`);
  await fences.recordTombstones([{ drop: "other", time: Date.now() }]);
  for (const name of names) await leave(name);
  const seen: string[][] = [];
  for await (const page of fences.recentUnfollowers("ada", 0)) {
    seen.push([...page]);
    if (seen.length === 1) await leave("unfollower-1500");
  }
  expect(new Set(seen.flat())).toEqual(new Set(names));
  expect(Math.max(...seen.map((page) => page.length))).toBeLessThanOrEqual(1_000);
  const [, , , , last] = await redis.raw
    .zrange(unfollowersKey("ada"), "-2", "-1", "WITHSCORES")
    .then((r) => ["", ...r]);
  const since: string[] = [];
  for await (const page of fences.recentUnfollowers("ada", Number(last))) since.push(...page);
  expect(since).toEqual(["unfollower-1500"]);
  for await (const page of fences.recentUnfollowers("nobody has left", 0)) expect(page).toEqual("no page");
});

// Invariant 4.
test("fences that were lost know the recent unfollowers again, and nobody counts as an unfollower of themselves", async () => {
  const log = [
    { event: { name: "user_unfollowed", payload: { follower_id: "bob", following_id: "ada", version: 5 } }, time: 1 },
    { event: { name: "user_unfollowed", payload: { follower_id: "ada", following_id: "ada", version: 5 } }, time: 2 },
  ] as const;
  const { fenceStore } = adaptersOn(redis.scripts, { maxEntries: 10 });
  const fences = createFences({ store: fenceStore, readHistory: historyOf(log), log: silent });
  await fences.recordTombstones([{ drop: "other", time: Date.now() }]);
  const all: string[] = [];
  for await (const page of fences.recentUnfollowers("ada", 0)) all.push(...page);
  expect(all).toEqual(["bob"]);
  expect(await fences.unfollowedAmong("ada", ["ada", "bob"])).toEqual(["bob"]);
});
