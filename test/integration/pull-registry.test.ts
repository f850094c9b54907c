import { expect, test } from "@jest/globals";
import { MAX_COPY_AGE_MS } from "../../src/state/big-authors/pulled.js";
import { createAuthorRegistry } from "../../src/state/big-authors/registry.js";
import { createPullStore } from "../../src/state/big-authors/store.redis.js";
import { PULLED_KEY } from "../../src/state/keys.js";
import { openRegistry, published, stateOf } from "../support/pulled.js";
import { clockOn } from "../support/redis.js";
import { redisOfFile } from "../support/redis-of-file.js";

const redis = redisOfFile();

test("an author crosses above the threshold, and back below 80 % of it", async () => {
  const registry = openRegistry(redis, 100);
  const after = async (followers: number) => {
    await registry.updateStates(published("ada", followers));
    for (const due of await registry.due()) await registry.proceed(due);
    return stateOf(registry, "ada");
  };
  expect(await after(100)).toBeUndefined();
  expect(await after(101)).toBe("pulled");
  expect(await after(80)).toBe("pulled");
  expect(await after(79)).toBe("leaving");
  expect(await after(79)).toBeUndefined();
});

test.each([
  [0, 1, "promoting"],
  [Number.POSITIVE_INFINITY, 1_000_000_000, undefined],
])("with a threshold of %d an author of %d followers is %s", async (threshold, followers, state) => {
  const registry = openRegistry(redis, threshold);
  await registry.updateStates(published("ada", followers));
  expect(await stateOf(registry, "ada")).toBe(state);
});

test.each([
  [0, undefined, undefined],
  [11, undefined, "tiering"],
  [101, undefined, "promoting"],
  [8, "tiered", "tiered"],
  [7, "tiered", "leaving"],
  [101, "tiered", "promoting"],
  [80, "pulled", "pulled"],
  [79, "pulled", "lowering"],
  [7, "pulled", "demoting"],
  [11, "demoting", "lowering"],
  [11, "leaving", "tiering"],
])(
  "with %d followers, tiered above 10 and pulled above 100, an author who is %s is then %s",
  async (followers, from, to) => {
    const registry = openRegistry(redis, 100, { tier: 10 });
    if (from) await redis.raw.hset(PULLED_KEY, { ada: `${from}:count:1`, "~version": 1, "~born": 1 });
    await registry.refresh();
    await registry.updateStates(published("ada", followers));
    expect(await stateOf(registry, "ada")).toBe(to);
  },
);

test.each([
  ["tier", undefined, ["tiering", "tiered"]],
  ["tier", "pulled", ["lowering", "tiering", "tiered"]],
  ["pull", "tiered", ["promoting", "pulled"]],
  ["push", "tiered", ["leaving", undefined]],
  ["tier", "promoting", ["lowering", "tiering", "tiered"]],
] as const)("an operator who chooses %s takes an author who is %s through %j", async (wish, from, states) => {
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY);
  if (from) await redis.raw.hset(PULLED_KEY, { ada: `${from}:hand:1`, "~version": 1, "~born": 1 });
  await registry.choose("ada", wish);
  const passed = [await stateOf(registry, "ada")];
  for (let due = await registry.due(); due[0]; due = await registry.due()) {
    await registry.proceed(due[0]);
    passed.push(await stateOf(registry, "ada"));
  }
  expect(passed).toEqual(states);
});

test("an operator's choice outweighs the followers until it is withdrawn", async () => {
  const registry = openRegistry(redis, 100);
  const end = async () => {
    for (let steps = 0; steps < 2; steps++) for (const due of await registry.due()) await registry.proceed(due);
  };
  await registry.choose("ada", "pull");
  await end();
  await registry.updateStates(published("ada", 1));
  expect(await registry.choose("ada", "pull")).toMatchObject({ state: "pulled", by: "hand" });
  await registry.choose("ada", "push");
  await end();
  await registry.updateStates(published("ada", 1_000));
  expect([...(await registry.list())]).toEqual([["ada", expect.objectContaining({ state: "pushed", by: "hand" })]]);
  expect((await registry.refresh()).size).toBe(0);
  await registry.choose("ada", "auto");
  expect((await registry.list()).size).toBe(0);
  await registry.updateStates(published("ada", 1_000));
  expect(await stateOf(registry, "ada")).toBe("promoting");
});

test("a change that another process has overtaken changes nothing", async () => {
  const [registry, other] = [openRegistry(redis, 100), openRegistry(redis, 100)];
  await registry.choose("ada", "pull");
  const [due] = await registry.due();
  if (!due) throw new Error("nothing is due");
  await other.choose("ada", "push");
  await registry.proceed(due);
  expect(await stateOf(registry, "ada")).toBe("demoting");
});

test("a state is due only after the grace, by the clock of Redis", async () => {
  const registry = openRegistry(redis, 100, { graceMs: 60_000 });
  await registry.choose("ada", "pull");
  expect(await registry.due()).toEqual([]);
  const [value = ""] = await redis.raw.hmget(PULLED_KEY, "ada");
  await redis.raw.hset(
    PULLED_KEY,
    "ada",
    String(value).replace(/\d+$/, (since) => String(Number(since) - 120_000)),
    "~version",
    1,
  );
  expect(await registry.due()).toEqual([expect.objectContaining({ author: "ada", state: "promoting" })]);
});

test("a copy is used until it is too old, counted from before it was read, and one of an empty registry says so", async () => {
  let now = 0;
  const registry = createAuthorRegistry({
    store: createPullStore(redis.scripts, clockOn(redis.scripts)),
    thresholds: { tier: Number.POSITIVE_INFINITY, pull: 100, pressure: Number.POSITIVE_INFINITY },
    clock: () => now,
  });
  expect(registry.copy()).toBeUndefined();
  const refreshed = registry.refresh();
  now = 500;
  await refreshed;
  now = MAX_COPY_AGE_MS;
  expect(registry.copy()?.size).toBe(0);
  now += 1;
  expect(registry.copy()).toBeUndefined();
});

test("a registry that is lost is restored from a copy, and what it had in hand begins anew", async () => {
  const registry = openRegistry(redis, 100);
  await registry.choose("ada", "pull");
  for (const due of await registry.due()) await registry.proceed(due);
  await registry.choose("bob", "push");
  await redis.raw.del(PULLED_KEY);
  expect(await stateOf(registry, "ada")).toBe("promoting");
  const other = openRegistry(redis, 100);
  expect([...(await other.list()).keys()].sort()).toEqual(["ada", "bob"]);
});

test("a registry that another process has begun anew after a loss gets back what a copy has", async () => {
  const registry = openRegistry(redis, 100);
  await registry.choose("ada", "pull");
  await redis.raw.del(PULLED_KEY);
  await openRegistry(redis, 100).choose("bob", "pull");
  expect([...(await registry.refresh()).keys()].sort()).toEqual(["ada", "bob"]);
  await redis.raw.del(PULLED_KEY);
  await registry.updateStates(published("eve", 1_000));
  expect([...(await registry.refresh()).keys()].sort()).toEqual(["ada", "bob", "eve"]);
});

test("after a loss of confirmed writes finished states begin anew", async () => {
  const registry = openRegistry(redis, 100);
  const authors = {
    zoe: "tiered:count:1",
    ada: "pulled:count:1",
    bob: "leaving:hand:1",
    eve: "pushed:hand:1",
    "~version": 1,
    "~born": 1,
  };
  await redis.raw.hset(PULLED_KEY, authors);
  await registry.beginAnew();
  expect(await stateOf(registry, "ada")).toBe("promoting");
  expect(await stateOf(registry, "bob")).toBe("demoting");
  expect(await stateOf(registry, "zoe")).toBe("tiering");
  expect((await registry.list()).get("eve")).toEqual({ state: "pushed", by: "hand", since: 1 });
});

test("a full registry takes no further author", async () => {
  const registry = openRegistry(redis, 0);
  const authors = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`a${index}`, "pulled:count:1"]));
  await redis.raw.hset(PULLED_KEY, { ...authors, "~version": 1, "~born": 1 });
  expect((await registry.refresh()).size).toBe(10_000);
  await registry.updateStates(published("ada", 1));
  expect(await stateOf(registry, "ada")).toBeUndefined();
  await expect(registry.choose("ada", "pull")).rejects.toThrow(/full/);
});
