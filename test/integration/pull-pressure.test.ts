import { expect, test } from "@jest/globals";
import type { AuthorRegistry } from "../../src/state/big-authors/registry.js";
import { authorKey, PULLED_KEY, postedKey } from "../../src/state/keys.js";
import { contextWith } from "../support/deliveries.js";
import { DROP, followers, handle, logged, openFanout, work } from "../support/fanout.js";
import { openRegistry, published, stateOf, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();
const [MINUTE, HOUR, DAY] = [60_000, 3_600_000, 86_400_000];
const OFF = Number.POSITIVE_INFINITY;
const NOW = Date.now();

/** Publishes drops of an author with 10 followers, one a minute; the last one at that time. */
async function post(registry: AuthorRegistry, count: number, last = NOW, name = `${last}`): Promise<void> {
  for (let n = count - 1; n >= 0; n--)
    await registry.updateStates(published("ada", 10, `${name}-${n}`, last - n * MINUTE));
}

async function end(registry: AuthorRegistry): Promise<void> {
  for (let steps = 0; steps < 2; steps++) for (const due of await registry.due()) await registry.proceed(due);
}

const heldBy = async (registry: AuthorRegistry) => (await registry.list()).get("ada");

/** The state of the author began so long ago. */
async function age(registry: AuthorRegistry, ms: number): Promise<void> {
  const { state, by } = (await heldBy(registry)) ?? {};
  await redis.raw.hset(PULLED_KEY, { ada: `${state}:${by}:${NOW - ms}`, "~version": `${ms}` });
  await registry.refresh();
}

test("an author is pulled above so many writes an hour: drops times followers", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 50 });
  await post(registry, 5);
  expect(await stateOf(registry, "ada")).toBeUndefined();
  await post(registry, 1, NOW + 1);
  expect(await heldBy(registry)).toMatchObject({ state: "promoting", by: "pressure" });
});

// Invariant 3.
test("a drop counts once, for an hour, at the time it was admitted", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 50 });
  for (let times = 0; times < 9; times++) await post(registry, 1, NOW, "same");
  await post(registry, 5, NOW - HOUR);
  await post(registry, 4, NOW, "others");
  expect(await stateOf(registry, "ada")).toBeUndefined();
  expect(await redis.raw.zcard(postedKey("ada"))).toBe(5);
  expect(await redis.raw.pttl(postedKey("ada"))).toBeGreaterThan(0);
});

test("drops that several processes publish are counted together", async () => {
  const registries = [1, 2].map(() => openRegistry(redis, OFF, { pressure: 50 }));
  for (const [at, registry] of registries.entries()) await post(registry, 3, NOW + at);
  expect(await stateOf(registries[0] as AuthorRegistry, "ada")).toBe("promoting");
});

test("nothing is counted of an author whose followers are too few for any number of drops", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 100_000 });
  await registry.updateStates(published("ada", 79));
  expect(await redis.raw.exists(postedKey("ada"))).toBe(0);
  await registry.updateStates(published("ada", 80));
  expect(await redis.raw.exists(postedKey("ada"))).toBe(1);
});

test("an author pulled by pressure stays pulled for a day, and then as long as the pressure is at least 80 %", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 50 });
  await post(registry, 6);
  await end(registry);
  await post(registry, 1, NOW + 2 * HOUR);
  expect(await heldBy(registry)).toMatchObject({ state: "pulled", by: "pressure" });
  await age(registry, DAY);
  await post(registry, 4, NOW + 4 * HOUR);
  expect(await stateOf(registry, "ada")).toBe("demoting");
});

test("after a day 80 % of the pressure keep an author pulled", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 50 });
  await post(registry, 6);
  await end(registry);
  await age(registry, DAY);
  await registry.updateStates(published("ada", 10, "another", NOW + 1));
  expect(await stateOf(registry, "ada")).toBe("pulled");
});

test.each([
  ["more followers than the threshold keep", 100, "pulled"],
  ["fewer than 80 % of it and no pressure do not keep", 79, "demoting"],
])("%s an author pulled, whatever the writes", async (_, count, state) => {
  const registry = openRegistry(redis, 100, { pressure: 1_000_000 });
  await registry.updateStates(published("ada", 101));
  await end(registry);
  expect(await heldBy(registry)).toMatchObject({ state: "pulled", by: "count" });
  await registry.updateStates(published("ada", count, "d2"));
  expect(await stateOf(registry, "ada")).toBe(state);
});

test("an operator's choice outweighs the writes", async () => {
  const registry = openRegistry(redis, OFF, { pressure: 50 });
  await registry.choose("ada", "push");
  await post(registry, 20);
  expect(await heldBy(registry)).toMatchObject({ state: "pushed", by: "hand" });
  await registry.choose("ada", "auto");
  await post(registry, 1);
  expect(await heldBy(registry)).toMatchObject({ state: "promoting", by: "pressure" });
});

// Invariant 3.
test("by its drops an author is pulled, and pushed again, and homes hold each drop; deletions and history do not count", async () => {
  const world = followers(5);
  const registry = openRegistry(redis, OFF, { pressure: 20 });
  const bench = openFanout(redis, world, { change: (deps) => ({ ...deps, authorStates: registry }) });
  const publish = async (drop_id: string, created_at: number): Promise<void> => {
    world.post({ ...DROP, drop_id, created_at });
    await handle(bench, created({ ...DROP, drop_id, created_at }));
  };
  await publish("d1", 1_000);
  await handle(bench, deleted("d0", "ada"));
  const rest = ["d2", "d3", "d4"].map((drop_id, at) => {
    const drop = { ...DROP, drop_id, created_at: 2_000 + at };
    world.post(drop);
    return logged(created(drop), Date.now(), at);
  });
  expect(await bench.handlers.drops.batch(rest, contextWith())).toEqual([]);
  expect(await stateOf(registry, "ada")).toBeUndefined();
  await publish("d5", 5_000);
  expect(await heldBy(registry)).toMatchObject({ state: "promoting", by: "pressure" });
  await step(bench, registry);
  await publish("d6", 6_000);
  expect((await held(redis.raw, homeKey("f0"))).entries.map(([drop]) => drop)).not.toContain("d6");
  expect((await held(redis.raw, authorKey("ada"))).entries.map(([drop]) => drop)).toEqual(["d6"]);
  await redis.raw.del(postedKey("ada"));
  await age(registry, DAY);
  await publish("d7", 7_000);
  await work(bench);
  expect(await stateOf(registry, "ada")).toBe("demoting");
  for (let steps = 0; steps < 2; steps++) await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBeUndefined();
  const drops = ["d7", "d6", "d5", "d4", "d3", "d2", "d1"];
  for (const follower of ["f0", "f4"])
    expect((await held(redis.raw, homeKey(follower))).entries.map(([drop]) => drop)).toEqual(drops);
});
