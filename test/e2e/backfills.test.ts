import { expect } from "@jest/globals";
import { jsonOf } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { followed, type TimelineEvent } from "../support/timeline-events.js";
import { held, homeKey } from "../support/timeline-keys.js";
import type { WorldDrop } from "../support/world.js";

const START = Date.now() - 3_600_000;
const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${prefix}-${at}`);

const follow = ({ world }: Stack, follower: string, author: string): TimelineEvent =>
  followed(follower, author, world.follow(follower, author));

/** Ten public drops of an author, below very many direct ones to others. */
function welcome({ world }: Stack, user_id: string, direct: number): string[] {
  const drops = names(`of-${user_id}`, 10).map((drop_id, at): WorldDrop => {
    return { drop_id, user_id, created_at: START + at };
  });
  const greetings = names(`hi-${user_id}`, direct).map((drop_id, at): WorldDrop => {
    return { drop_id, user_id, created_at: START + 100 + at, visibility: "direct", recipients: [`new-${at}`] };
  });
  world.post(...drops, ...greetings);
  return drops.map(({ drop_id }) => drop_id).reverse();
}

const homeOf = async ({ redis }: Stack, user: string): Promise<string[]> =>
  (await held(redis, homeKey(user))).entries.map(([drop]) => drop);

const floorOf = ({ redis }: Stack, user: string): Promise<string | null> => redis.zscore(homeKey(user), "~floor");

const becomes = (stack: Stack, user: string, drops: number): Promise<void> =>
  eventually(async () => (await homeOf(stack, user)).length === drops, `${user} has ${drops} drops`, 30_000);

testWithStack(
  "a follow of an author of very many direct drops reads those that its follower may see",
  { leavesOutDirect: true },
  async (stack) => {
    const { world, upstreams } = stack;
    const drops = welcome(stack, "bot", 21_000);
    world.post({
      ...{ drop_id: "to-rik", user_id: "bot", created_at: START + 50 },
      visibility: "direct",
      recipients: ["rik"],
    });
    await stack.reads.home("rik");
    const before = upstreams.calls("GetDropsByUserID", "bot");
    await stack.publish(follow(stack, "rik", "bot"));
    await becomes(stack, "rik", 11);
    expect(await homeOf(stack, "rik")).toEqual(["to-rik", ...drops]);
    expect(upstreams.calls("GetDropsByUserID", "bot") - before).toBeLessThanOrEqual(3);
    expect(await floorOf(stack, "rik")).toBe("0");
  },
);

// Invariant 11.
testWithStack(
  "a follow of an author of very many direct drops, all of which the upstream lists, holds up no other",
  { timeoutMs: 60_000 },
  async (stack) => {
    const { world, upstreams } = stack;
    welcome(stack, "bot", 21_000);
    world.post({ drop_id: "of-carol", user_id: "carol", created_at: START });
    await Promise.all(["rik", "bob"].map((user) => stack.reads.home(user)));
    const heal = upstreams.inject({ method: "GetDropsByUserID", user: "bot", delayMs: 200 });
    await stack.publish(follow(stack, "rik", "bot"), follow(stack, "bob", "carol"));
    await becomes(stack, "bob", 1);
    expect(upstreams.calls("GetDropsByUserID", "bot")).toBeLessThan(20);
    heal();
    await eventually(async () => (await floorOf(stack, "rik")) === null, "the home is left to be rebuilt", 30_000);
    expect(upstreams.calls("GetDropsByUserID", "bot")).toBeLessThanOrEqual(120);
  },
);

// Invariant 11.
testWithStack("one who follows 1,000 users at once holds up no other follow", { timeoutMs: 60_000 }, async (stack) => {
  const { world, upstreams } = stack;
  const authors = names("author", 1_000);
  for (const user_id of [...authors, "carol"]) world.post({ drop_id: `of-${user_id}`, user_id, created_at: START });
  await Promise.all(["ann", "bob"].map((user) => stack.reads.home(user)));
  const heals = authors.map((user) => upstreams.inject({ method: "GetDropsByUserID", user, delayMs: 1_000 }));
  const before = upstreams.calls("GetDropsByUserID");
  await stack.publish(...authors.map((author) => follow(stack, "ann", author)));
  await eventually(() => upstreams.mostHeld() === 128, "all slots are taken");
  await stack.publish(follow(stack, "bob", "carol"));
  await becomes(stack, "bob", 1);
  // Each author takes two calls, of which the second one finds the end.
  expect(upstreams.calls("GetDropsByUserID") - before).toBeLessThan(1_500);
  for (const heal of heals) heal();
  await becomes(stack, "ann", 1_000);
});

testWithStack(
  "an author who ceases to be pulled is read as far as a home can hold, without direct drops",
  { leavesOutDirect: true, env: { TIMELINE_MAX_ENTRIES: "300" }, timeoutMs: 60_000 },
  async (stack) => {
    const { world, upstreams } = stack;
    const drops = welcome(stack, "ada", 21_000);
    for (const follower of ["f0", "f1"]) world.follow(follower, "ada");
    const state = async () => (await stack.redis.hget("timeline:x:pulled", "ada"))?.split(":")[0] ?? "pushed";
    await jsonOf(stack, ["author", "pull", "ada"]);
    await eventually(async () => (await state()) === "pulled", "ada is pulled", 20_000);
    const before = upstreams.calls("GetDropsByUserID", "ada");
    await jsonOf(stack, ["author", "push", "ada"]);
    await eventually(async () => (await state()) === "pushed", "ada is pushed", 30_000);
    expect(await homeOf(stack, "f1")).toEqual(drops);
    expect(upstreams.calls("GetDropsByUserID", "ada") - before).toBeLessThanOrEqual(3);
  },
);

// Invariant 11.
testWithStack(
  "an author who ceases to be pulled is read with a bounded number of calls, also where the upstream lists all direct drops",
  { timeoutMs: 60_000 },
  async (stack) => {
    const { world, upstreams, redis } = stack;
    welcome(stack, "ada", 25_000);
    world.follow("f0", "ada");
    await redis.zadd(homeKey("f0"), 0, "~floor", START + 1, "kept");
    const state = async () => (await redis.hget("timeline:x:pulled", "ada"))?.split(":")[0] ?? "pushed";
    await jsonOf(stack, ["author", "pull", "ada"]);
    await eventually(async () => (await state()) === "pulled", "ada is pulled", 20_000);
    const before = upstreams.calls("GetDropsByUserID", "ada");
    await jsonOf(stack, ["author", "push", "ada"]);
    await eventually(async () => (await state()) === "pushed", "ada is pushed", 30_000);
    expect(upstreams.calls("GetDropsByUserID", "ada") - before).toBeLessThanOrEqual(100);
    expect([await floorOf(stack, "f0"), await homeOf(stack, "f0")]).toEqual([null, ["kept"]]);
  },
);
