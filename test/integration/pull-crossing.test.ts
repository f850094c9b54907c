import { expect, test } from "@jest/globals";
import type { FanoutDeps } from "../../src/fanout/deps.js";
import { PULLS_COMPLETE, PULLS_FILLING } from "../../src/state/big-authors/pulled.js";
import { authorKey, pullsKey, RECENT_KEY } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { DROP, type FanoutBench, followers, handle, logged, openFanout, work } from "../support/fanout.js";
import { openRegistry, stateOf, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted, followed, unfollowed } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { World } from "../support/world.js";

const redis = redisOfFile();
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);
const pullsOf = async (user: string) => (await redis.raw.smembers(pullsKey(user))).sort();

function open(world: World, threshold: number, change: (deps: FanoutDeps) => FanoutDeps = (deps) => deps) {
  const authorStates = openRegistry(redis, threshold);
  const bench = openFanout(redis, world, { pageSize: 2, change: (deps) => change({ ...deps, authorStates }) });
  return { registry: authorStates, bench };
}

async function post(bench: FanoutBench, world: World, drop_id: string, created_at: number): Promise<void> {
  world.post({ ...DROP, drop_id, created_at });
  await handle(bench, created({ ...DROP, drop_id, created_at }));
  await work(bench);
}

/** An author with five followers, who knows which authors they pull. */
async function pulledAuthor() {
  const world = followers(5);
  const { registry, bench } = open(world, 3);
  for (let index = 0; index < 5; index++) await redis.raw.sadd(pullsKey(`f${index}`), PULLS_COMPLETE);
  await post(bench, world, "d1", 1_000);
  await step(bench, registry);
  return { world, registry, bench };
}

test("an author with more followers than the threshold is promoted: sets that are known get the author, fills start over, others stay unknown", async () => {
  const world = followers(5);
  const { registry, bench } = open(world, 4);
  await redis.raw.sadd(pullsKey("f0"), PULLS_COMPLETE, "eve");
  await redis.raw.sadd(pullsKey("f1"), `${PULLS_FILLING}1`);
  await redis.raw.zadd(authorKey("ada"), 0, "~floor", 500, "stale");
  await post(bench, world, "d1", 1_000);
  expect(await stateOf(registry, "ada")).toBe("promoting");
  await post(bench, world, "d2", 2_000);
  expect([await idsOf(authorKey("ada")), await idsOf(homeKey("f0"))]).toEqual([
    ["d2", "stale"],
    ["d2", "d1"],
  ]);
  await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe("pulled");
  expect([await pullsOf("f0"), await pullsOf("f1"), await pullsOf("f2")]).toEqual([
    ["ada", "eve", "~complete"],
    [],
    [],
  ]);
  expect(await held(redis.raw, authorKey("ada"))).toEqual({ entries: [], floor: undefined });
});

// Invariant 2.
test("once an author is pulled, the pulled authors of every listener are known", async () => {
  const world = followers(5);
  world.follow("eve", "bob");
  const { registry, bench } = open(world, 4);
  await redis.raw.zadd(RECENT_KEY, Date.now(), "f1", Date.now(), "eve");
  await post(bench, world, "d1", 1_000);
  await step(bench, registry);
  expect([await pullsOf("f1"), await pullsOf("eve"), await pullsOf("f2")]).toEqual([
    ["ada", "~complete"],
    ["~complete"],
    [],
  ]);
});

test("a drop of a pulled author is in the author's timeline and home, and in no other; its fan-out is completed for all followers", async () => {
  const { world, bench } = await pulledAuthor();
  await post(bench, world, "d2", 2_000);
  expect([await idsOf(authorKey("ada")), await idsOf(homeKey("ada")), await idsOf(homeKey("f0"))]).toEqual([
    ["d2"],
    ["d2", "d1"],
    ["d1"],
  ]);
  expect(bench.completed.at(-1)).toMatchObject({ drop_id: "d2", recipients: 6 });
});

// Invariant 3.
test("a batch leaves drops of authors who are pulled, and of those who begin to be while it is applied", async () => {
  const world = followers(5);
  let meanwhile = async (): Promise<unknown> => undefined;
  const { registry, bench } = open(world, Number.POSITIVE_INFINITY, ({ writer, ...deps }) => ({
    ...deps,
    writer: { ...writer, addToHomes: (...args) => meanwhile().then(() => writer.addToHomes(...args)) },
  }));
  // Its list is kept, and the author's drops are taken in batches.
  await post(bench, world, "d1", 1_000);
  const batch = ["d2", "d3", "d4"].map((drop_id) => logged(created({ ...DROP, drop_id }), Date.now()));
  expect(await bench.handlers.drops.batch(batch.slice(0, 1), contextWith())).toEqual([]);
  meanwhile = () => registry.choose("ada", "pull");
  expect(await bench.handlers.drops.batch(batch.slice(1, 2), contextWith())).toEqual(batch.slice(1, 2));
  expect(await stateOf(registry, "ada")).toBe("promoting");
  meanwhile = async () => undefined;
  await step(bench, registry);
  expect(await bench.handlers.drops.batch(batch.slice(2), contextWith())).toEqual(batch.slice(2));
  expect(await idsOf(homeKey("f0"))).not.toContain("d4");
});

test("a direct drop of a pulled author is pushed to its recipients", async () => {
  const { bench } = await pulledAuthor();
  await handle(bench, created({ ...DROP, drop_id: "d2", visibility: "direct", recipients: ["f1"] }));
  expect([await idsOf(authorKey("ada")), await idsOf(homeKey("f1")), await idsOf(homeKey("f0"))]).toEqual([
    [],
    ["d2", "d1"],
    ["d1"],
  ]);
});

test("a deletion removes what was pushed and what is pulled, and notifies everybody who pulled it, also when it is planned again", async () => {
  const { world, bench } = await pulledAuthor();
  for (let index = 0; index < 5; index++) await redis.raw.zadd(RECENT_KEY, Date.now(), `f${index}`);
  await post(bench, world, "d2", 2_000);
  bench.notified.length = 0;
  const { queue } = bench.deps;
  let fails = true;
  const failing = openFanout(redis, world, {
    pageSize: 2,
    change: (deps) => ({
      ...deps,
      authorStates: bench.deps.authorStates,
      notify: bench.deps.notify,
      queue: async (jobs) => {
        if (fails) throw new Error("not stored");
        await queue(jobs);
      },
    }),
  });
  await expect(handle(failing, deleted("d2", "ada"))).rejects.toThrow("not stored");
  fails = false;
  await handle(failing, deleted("d2", "ada"));
  await handle(bench, deleted("d1", "ada"));
  await work(bench);
  expect([await idsOf(authorKey("ada")), await idsOf(homeKey("ada")), await idsOf(homeKey("f0"))]).toEqual([
    [],
    [],
    [],
  ]);
  const told = (drop: string) =>
    bench.notified.filter(({ notification }) => notification.drop_id === drop).flatMap(({ users }) => users);
  expect([...new Set(told("d2"))].sort()).toEqual(["ada", "f0", "f1", "f2", "f3", "f4"]);
  expect(told("d1").sort()).toEqual(["ada", "f0", "f1", "f2", "f3", "f4"]);
});

test("a follow of a pulled author adds to the follower's set, and to the home what is direct too; an unfollow clears both", async () => {
  const { world, bench } = await pulledAuthor();
  await redis.raw.sadd(pullsKey("late"), PULLS_COMPLETE);
  world.post({ ...DROP, drop_id: "d2", created_at: 2_000, visibility: "direct", recipients: ["late"] });
  world.follow("late", "ada");
  await handle(bench, followed("late", "ada", 1));
  expect([await pullsOf("late"), await idsOf(homeKey("late"))]).toEqual([
    ["ada", "~complete"],
    ["d2", "d1"],
  ]);
  world.unfollow("late", "ada");
  await handle(bench, unfollowed("late", "ada", 2));
  expect([await pullsOf("late"), await idsOf(homeKey("late"))]).toEqual([["~complete"], []]);
});

// Invariant 4.
test("an unfollow that is handled once its author is pushed again clears the follower's set of the author", async () => {
  const { world, registry, bench } = await pulledAuthor();
  await registry.choose("ada", "push");
  await step(bench, registry);
  world.unfollow("f0", "ada");
  await step(bench, registry);
  expect([await stateOf(registry, "ada"), await pullsOf("f0")]).toEqual([undefined, ["ada", "~complete"]]);
  await handle(bench, unfollowed("f0", "ada", 2));
  expect(await pullsOf("f0")).toEqual(["~complete"]);
});

// Invariant 5.
test("a follow that is applied while its author begins to be pulled adds to the follower's set, too", async () => {
  const world = followers(2);
  const { registry, bench } = open(world, Number.POSITIVE_INFINITY, (deps) => ({
    ...deps,
    readAuthorDrops: async (...of) => {
      await registry.choose("ada", "pull");
      return deps.readAuthorDrops(...of);
    },
  }));
  await redis.raw.sadd(pullsKey("late"), PULLS_COMPLETE);
  world.follow("late", "ada");
  await handle(bench, followed("late", "ada", 1));
  expect([await stateOf(registry, "ada"), await pullsOf("late")]).toEqual(["promoting", ["ada", "~complete"]]);
});

// Invariant 5.
test("homes that get the drops of an author again make their rebuilds under way start over", async () => {
  const { registry, bench } = await pulledAuthor();
  await redis.raw.zadd(homeKey("f1"), -7, "~floor");
  await registry.choose("ada", "push");
  await step(bench, registry);
  expect(await held(redis.raw, homeKey("f1"))).toEqual({ entries: [["d1", 1_000]], floor: undefined });
});

// Invariant 4.
test("a drop that is deleted while its author's drops go into homes again does not stay there", async () => {
  const { world, registry, bench } = await pulledAuthor();
  await post(bench, world, "d2", 2_000);
  await registry.choose("ada", "push");
  const readAuthorDrops: FanoutDeps["readAuthorDrops"] = async (...of) => {
    const page = await bench.deps.readAuthorDrops(...of);
    await handle(bench, deleted("d2", "ada"));
    await work(bench);
    return page;
  };
  await step({ ...bench, deps: { ...bench.deps, readAuthorDrops } }, registry);
  expect([await stateOf(registry, "ada"), await idsOf(homeKey("f0"))]).toEqual(["leaving", ["d1"]]);
});

test("an author who is demoted is in the homes again, and in no set; later drops are pushed", async () => {
  const { world, registry, bench } = await pulledAuthor();
  await post(bench, world, "d2", 2_000);
  await registry.choose("ada", "push");
  await post(bench, world, "d3", 3_000);
  await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe("leaving");
  expect([await idsOf(homeKey("f4")), await pullsOf("f4")]).toEqual([
    ["d3", "d2", "d1"],
    ["ada", "~complete"],
  ]);
  await step(bench, registry);
  expect([await stateOf(registry, "ada"), await pullsOf("f4")]).toEqual([undefined, ["~complete"]]);
  await post(bench, world, "d4", 4_000);
  expect((await idsOf(homeKey("f4")))[0]).toBe("d4");
  expect(await stateOf(registry, "ada")).toBeUndefined();
});

// Invariant 5.
test.each([
  ["push", "leaving", undefined, ["~complete"]],
  ["tier", "tiering", "tiered", ["ada", "~complete"]],
] as const)(
  "a drop that is under way when a pulled author crosses to %s stays on the pages until homes have it",
  async (choice, state, end, pulls) => {
    const { world, registry } = await pulledAuthor();
    // A process that has read no list of followers yet queues jobs.
    const bench = openFanout(redis, world, { pageSize: 2, change: (deps) => ({ ...deps, authorStates: registry }) });
    await registry.choose("ada", choice);
    const readAuthorDrops: FanoutDeps["readAuthorDrops"] = async (...of) => {
      const page = await bench.deps.readAuthorDrops(...of);
      if (bench.jobs.length === 0) {
        world.post({ ...DROP, drop_id: "d2", created_at: 2_000 });
        await handle(bench, created({ ...DROP, drop_id: "d2", created_at: 2_000 }));
      }
      return page;
    };
    await step({ ...bench, deps: { ...bench.deps, readAuthorDrops } }, registry);
    await step(bench, registry);
    expect([await stateOf(registry, "ada"), await idsOf(authorKey("ada")), await idsOf(homeKey("f4"))]).toEqual([
      state,
      ["d2"],
      ["d1"],
    ]);
    expect(await pullsOf("f4")).toEqual(["ada", "~complete"]);
    await work(bench);
    await step(bench, registry);
    expect([await stateOf(registry, "ada"), await idsOf(homeKey("f4")), await pullsOf("f4")]).toEqual([
      end,
      ["d2", "d1"],
      pulls,
    ]);
  },
);

test("a home whose floor is below what an author's list holds gets a floor where that list is cut off", async () => {
  const world = followers(1);
  const registry = openRegistry(redis, 0);
  const bench = openFanout(redis, world, { maxEntries: 10, change: (deps) => ({ ...deps, authorStates: registry }) });
  for (let time = 1; time <= 15; time++) world.post({ ...DROP, drop_id: `d${time + 10}`, created_at: time });
  await redis.raw.zadd(homeKey("f0"), 0, "~floor");
  await registry.choose("ada", "pull");
  await step(bench, registry);
  await registry.choose("ada", "push");
  await step(bench, registry);
  const { entries, floor } = await held(redis.raw, homeKey("f0"));
  expect([entries[0], floor]).toEqual([["d25", 15], 15 - entries.length]);
});

// Invariant 3.
test.each([
  ["promoting", "pulled"],
  ["demoting", undefined],
  ["leaving", undefined],
  ["lowering", "tiered"],
  ["tiering", "tiered"],
])("a step that breaks off while an author is %s is done again", async (state, end) => {
  const { world, registry, bench } = await pulledAuthor();
  await post(bench, world, "d2", 2_000);
  await registry.choose("ada", end === "tiered" ? "tier" : "push");
  if (state === "promoting") await registry.choose("ada", "pull");
  if (state === "leaving" || state === "tiering") await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe(state);
  const { readFollowers } = bench.deps;
  const breaking: FanoutBench = {
    ...bench,
    deps: {
      ...bench.deps,
      readFollowers: async (author, token) => {
        if (token !== "") throw new Error("killed");
        return readFollowers(author, token);
      },
    },
  };
  await expect(step(breaking, registry)).rejects.toThrow("killed");
  expect(await stateOf(registry, "ada")).toBe(state);
  for (let steps = 0; steps < 2; steps++) await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe(end);
  for (let index = 0; index < 5; index++) {
    const reads = [...(await idsOf(homeKey(`f${index}`))), ...(end ? await idsOf(authorKey("ada")) : [])];
    expect(await pullsOf(`f${index}`)).toEqual(end ? ["ada", "~complete"] : ["~complete"]);
    expect(reads).toEqual(end === "pulled" ? ["d1"] : ["d2", "d1"]);
  }
});

// Invariant 3.
test.each(["demoting", "promoting"])(
  "a follower who leaves while a step breaks off (%s) keeps nothing of the author",
  async (state) => {
    const { world, registry, bench } = await pulledAuthor();
    await post(bench, world, "d2", 2_000);
    await registry.choose("ada", "push");
    if (state === "promoting") await registry.choose("ada", "pull");
    expect(await stateOf(registry, "ada")).toBe(state);
    const breaking = async (write: () => Promise<unknown>): Promise<never> => {
      world.unfollow("f0", "ada");
      await handle(bench, unfollowed("f0", "ada", 2));
      await write();
      throw new Error("killed");
    };
    const { writer, authors } = bench.deps;
    const deps: FanoutDeps = {
      ...bench.deps,
      writer: { ...writer, addToHomes: (...homes) => breaking(() => writer.addToHomes(...homes)) },
      authors: { ...authors, addToPulls: (...users) => breaking(() => authors.addToPulls(...users)) },
    };
    await expect(step({ ...bench, deps }, registry)).rejects.toThrow("killed");
    await step(bench, registry);
    expect([await idsOf(homeKey("f0")), await pullsOf("f0")]).toEqual([[], ["~complete"]]);
    expect(await idsOf(homeKey("f1"))).toEqual(state === "demoting" ? ["d2", "d1"] : ["d1"]);
  },
);

// Invariant 3.
test.each([
  ["pushed", "promoting", undefined],
  ["pulled", "demoting", "pulled"],
  ["pulled", "lowering", "pulled"],
  ["tiered", "promoting", "tiered"],
] as const)("a drop that is planned while its author is %s and then %s is written for both", async (_, now, before) => {
  const world = followers(3);
  const registries = [before, now].map(
    (state) => new Map(state && [["ada", { state, by: "hand", since: 0 } as const]]),
  );
  let looks = 0;
  const pulled = {
    copy: () => registries[Math.min(1, looks++)],
    refresh: async () => new Map(),
  };
  const change = (deps: FanoutDeps) => ({ ...deps, authorStates: { ...deps.authorStates, ...pulled } });
  const bench = openFanout(redis, world, { pageSize: 2, change });
  await handle(bench, created(DROP));
  await work(bench);
  expect([await idsOf(authorKey("ada")), await idsOf(homeKey("f0")), await idsOf(homeKey("f2"))]).toEqual([
    ["d1"],
    ["d1"],
    ["d1"],
  ]);
});

// Invariant 3.
test("a follower who leaves while an author is promoted or demoted keeps nothing of the author", async () => {
  const { world, registry, bench } = await pulledAuthor();
  await post(bench, world, "d2", 2_000);
  const leave = async (user: string) => {
    const stale = { ids: world.followersOf("ada"), next: "" };
    world.unfollow(user, "ada");
    await handle(bench, unfollowed(user, "ada", 2));
    const racing = { ...bench, deps: { ...bench.deps, readFollowers: async () => stale } };
    await step(racing, registry);
  };
  await registry.choose("ada", "push");
  await leave("f0");
  expect([await idsOf(homeKey("f0")), await idsOf(homeKey("f1"))]).toEqual([[], ["d2", "d1"]]);
  await registry.choose("ada", "pull");
  await leave("f1");
  expect([await pullsOf("f1"), await idsOf(homeKey("f1"))]).toEqual([["~complete"], []]);
});
