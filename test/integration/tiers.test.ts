import { expect, test } from "@jest/globals";
import type { HomeTier } from "../../src/contracts/fanout.js";
import { jobSubject } from "../../src/contracts/subjects.js";
import { PULLS_COMPLETE } from "../../src/state/big-authors/pulled.js";
import { authorKey, pullsKey, RECENT_KEY } from "../../src/state/keys.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { DROP, type FanoutBench, followers, handle, openFanout, work } from "../support/fanout.js";
import { openRegistry, stateOf, step } from "../support/pulled.js";
import { redisOfFile } from "../support/redis-of-file.js";
import { created, deleted } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";

const redis = redisOfFile();
const idsOf = async (key: string) => (await held(redis.raw, key)).entries.map(([id]) => id);

/** ada, with the followers f0, who listens, f1, who has read their home, and f2 to f4. */
async function tieredAuthor() {
  const world = followers(5);
  const registry = openRegistry(redis, Number.POSITIVE_INFINITY, { tier: 3 });
  const bench = openFanout(redis, world, { pageSize: 2, change: (deps) => ({ ...deps, authorStates: registry }) });
  for (let index = 0; index < 5; index++) await redis.raw.sadd(pullsKey(`f${index}`), PULLS_COMPLETE);
  await redis.raw.zadd(RECENT_KEY, Date.now(), "f0");
  await redis.raw.zadd(homeKey("f1"), 0, "~floor");
  const post = async (drop_id: string, created_at: number) => {
    world.post({ ...DROP, drop_id, created_at });
    await handle(bench, created({ ...DROP, drop_id, created_at }));
  };
  await post("d1", 1_000);
  await work(bench);
  await step(bench, registry);
  expect(await stateOf(registry, "ada")).toBe("tiered");
  bench.completed.length = 0;
  bench.notified.length = 0;
  return { registry, bench, post };
}

/** Does the jobs of some tiers and leaves the others. */
async function workOn(bench: FanoutBench, ...tiers: readonly string[]): Promise<void> {
  const left = bench.jobs.filter(({ tier = "" }) => !tiers.includes(tier));
  bench.jobs.splice(0, bench.jobs.length, ...bench.jobs.filter((job) => !left.includes(job)));
  await work(bench);
  bench.jobs.push(...left);
}

// Invariant 5.
test("a drop of a tiered author is written to those who listen, then to recent readers, then to the others; until then it is in the author's timeline", async () => {
  const { bench, post } = await tieredAuthor();
  await post("d2", Date.now());
  const holders = async () => {
    const users = ["ada", "f0", "f1", "f2", "f3", "f4"];
    const ids = await Promise.all(users.map((user) => idsOf(homeKey(user))));
    return users.filter((_, at) => ids[at]?.includes("d2"));
  };
  expect(bench.jobs.map(({ tier, user_ids }) => [tier, ...user_ids])).toEqual([
    ["connected", "ada"],
    ["connected", "f0"],
    ["recent", "f1"],
    ["rest", "f0"],
    ["rest", "f2", "f3"],
    ["rest", "f4"],
  ]);
  await workOn(bench, "connected");
  expect(await holders()).toEqual(["ada", "f0"]);
  expect(bench.notified.flatMap(({ users }) => users)).toEqual(["ada", "f0"]);
  await workOn(bench, "recent");
  expect(await holders()).toEqual(["ada", "f0", "f1"]);
  expect([await idsOf(authorKey("ada")), bench.completed]).toEqual([["d2"], []]);
  await workOn(bench, "rest");
  expect(await holders()).toEqual(["ada", "f0", "f1", "f2", "f3", "f4"]);
  expect(await redis.raw.exists(authorKey("ada"))).toBe(0);
  const [{ tiers, ...completed } = {}, ...more] = bench.completed;
  expect([completed, more]).toMatchObject([{ drop_id: "d2", recipients: 6, chunks: 6 }, []]);
  expect(tiers).toMatchObject({ connected: { recipients: 2 }, recent: { recipients: 1 }, rest: { recipients: 4 } });
  const landed = [tiers?.connected, tiers?.recent, tiers?.rest].map((tier) => tier?.landed_at ?? 0);
  expect([...landed].sort((a, b) => a - b)).toEqual(landed);
});

// Invariant 5.
test("a tiered drop that is deleted between the tiers is gone everywhere, and everybody who could read it is told", async () => {
  const { bench, post } = await tieredAuthor();
  await post("d2", 2_000);
  await workOn(bench, "connected");
  await handle(bench, deleted("d2", "ada"));
  await work(bench);
  for (const key of [authorKey("ada"), ...["ada", "f0", "f1", "f4"].map(homeKey)])
    expect(await idsOf(key)).not.toContain("d2");
  const told = bench.notified.filter(({ notification }) => notification.event === "drop_deleted");
  expect(told.flatMap(({ users }) => users).sort()).toEqual(["ada", "f0", "f1", "f2", "f3", "f4"]);
});

// Invariant 5.
test("a drop that is under way when its author ceases to be tiered stays on the pages until homes have it", async () => {
  const { registry, bench, post } = await tieredAuthor();
  await post("d2", 2_000);
  await workOn(bench, "connected", "recent");
  await registry.choose("ada", "push");
  await step(bench, registry);
  const pulls = async () => (await redis.raw.smembers(pullsKey("f4"))).sort();
  expect([await stateOf(registry, "ada"), await idsOf(authorKey("ada")), await pulls()]).toEqual([
    "leaving",
    ["d2"],
    ["ada", PULLS_COMPLETE],
  ]);
  await work(bench);
  await step(bench, registry);
  expect([await stateOf(registry, "ada"), await idsOf(homeKey("f4")), await pulls()]).toEqual([
    undefined,
    ["d2", "d1"],
    [PULLS_COMPLETE],
  ]);
});

// Invariant 5.
test("a removal from the author's timeline that fails is done again before the fan-out is completed", async () => {
  const { registry, bench, post } = await tieredAuthor();
  await post("d2", 2_000);
  const [last] = bench.jobs.splice(-1);
  await work(bench);
  if (!last) throw new Error("no job is left");
  const { authors } = bench.deps;
  const remove = async () => {
    throw new Error("killed");
  };
  const world = followers(5);
  const dying = openFanout(redis, world, {
    change: (deps) => ({ ...deps, authorStates: registry, authors: { ...authors, remove } }),
  });
  dying.jobs.push(last);
  await expect(work(dying)).rejects.toThrow("killed");
  expect([dying.completed, await idsOf(authorKey("ada"))]).toEqual([[], ["d2"]]);
  bench.jobs.push(last);
  await work(bench);
  expect([bench.completed.length, await idsOf(authorKey("ada"))]).toEqual([1, []]);
});

test("the last tier begins once other jobs have ended", async () => {
  const order: string[] = [];
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const bench = openFanout(redis, followers(2), {
    change: (deps) => {
      const addToHomes: typeof deps.writer.addToHomes = async (all, yields) => {
        const [user] = all[0]?.audience.ids ?? [];
        order.push(`${user} begins`);
        if (user === "f0") await opened;
        const isTaken = await deps.writer.addToHomes(all, yields);
        order.push(`${user} ends`);
        return isTaken;
      };
      return { ...deps, writer: { ...deps.writer, addToHomes } };
    },
  });
  const { drop_id, user_id, created_at } = DROP;
  const job = { action: "add", event: "drop_created", drop_id, user_id, created_at, generation: "g" } as const;
  const deliver = (tier: HomeTier, user: string) => {
    const one = { ...job, admitted_at: Date.now(), tier, user_ids: [user] };
    return [deliveryOf({ stream: "FANOUT", subject: jobSubject(one), json: one })];
  };
  const recent = bench.handlers.jobs.batch(deliver("recent", "f0"), contextWith());
  const rest = bench.handlers.rest.batch(deliver("rest", "f1"), contextWith());
  for (let turns = 0; turns < 50; turns++) await new Promise(setImmediate);
  open();
  await Promise.all([recent, rest]);
  expect(order).toEqual(["f0 begins", "f0 ends", "f1 begins", "f1 ends"]);
});

test("a drop of history is not tiered", async () => {
  const { bench } = await tieredAuthor();
  const { apply } = await import("../../src/fanout/fanout.js").then(({ composeFanout }) => composeFanout(bench.deps));
  await apply({ name: "drop_created", payload: { ...DROP, drop_id: "d0", created_at: 500 } }, { time: Date.now() });
  expect([bench.jobs, await idsOf(authorKey("ada")), await idsOf(homeKey("f4"))]).toEqual([[], [], ["d1", "d0"]]);
});
