import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { headers as newHeaders } from "nats";
import { startRedis } from "../../src/sandbox/brokers/index.js";
import { eventually } from "../support/eventually.js";
import { drops, expectLoaded } from "../support/load.js";
import { progressRecorded } from "../support/progress-recorded.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
/** Pages of five followers: alice's audience is queued in chunks. */
const OPTIONS = { env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 60_000 };

/** The server identity record. */
const RECORD = "timeline:x:continuity:{0}";

/** Kills Redis and starts it with what it had saved; what it wrote since is lost, as in a failover. */
async function loseSince({ redis, redisServer, afterServices }: Stack, during: () => Promise<void>): Promise<void> {
  await redis.config("SET", "appendonly", "no");
  await redis.save();
  await during();
  redisServer.kill("SIGKILL");
  await redisServer.exited;
  const again = await startRedis({ dir: redisServer.dir, port: redisServer.port });
  afterServices(() => again.stop());
}

/** The metric that counts replays. */
async function replays(stack: Stack): Promise<number> {
  const text = await (await fetch(`${stack.service.httpUrl}/metrics`)).text();
  return Number(/timeline_redis_losses_total(?:\{[^}]*\})? (\d+)/.exec(text)?.[1] ?? 0);
}

// Invariant 1.
testWithStack("writes that Redis confirmed and lost are applied again from the log", OPTIONS, async (stack) => {
  const { streams, world, reads } = stack;
  const before = drops(stack.world, READERS, 0, 20);
  await stack.publish(...before);
  await streams.settled(before.length);
  for (const reader of READERS) await reads.home(reader);
  await progressRecorded(stack);
  const lost = drops(stack.world, READERS, 20, 30);
  world.remove("load-3");
  const gone = [deleted("load-3", "alice"), unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice"))];
  await loseSince(stack, async () => {
    await stack.publish(...lost, ...gone);
    await streams.settled(before.length + lost.length + gone.length);
  });
  await eventually(async () => (await replays(stack)) === 1, "the loss is noticed and recovered from", 30_000);
  await streams.settledWith(before.length + lost.length + gone.length);
  // The sets themselves, before any read could have healed them.
  await expectLoaded(stack.redis, READERS, [...before, ...lost, ...gone]);
  await eventually(async () => !(await reads.home("reader-0")).degraded, "pages are whole again");
  expect(await streams.count("DLQ")).toBe(0);
});

// Invariant 5.
testWithStack("pages are degraded while lost events are applied again", OPTIONS, async (stack) => {
  const { streams, upstreams, reads } = stack;
  const before = drops(stack.world, READERS, 0, 5);
  await stack.publish(...before);
  await streams.settled(before.length);
  expect((await reads.home("reader-0", { limit: 100 })).degraded).toBe(false);
  await progressRecorded(stack);
  const lost = drops(stack.world, READERS, 5, 5);
  await loseSince(stack, async () => {
    await stack.publish(...lost);
    await streams.settled(before.length + lost.length);
  });
  const heal = upstreams.inject({ method: "GetFollowersList", delayMs: 1_500 });
  const pages: { ids: number; degraded: boolean }[] = [];
  await eventually(
    async () => {
      const page = await reads.home("reader-0", { limit: 100 }, 2_000).catch(() => undefined);
      if (page) pages.push({ ids: page.drop_ids.length, degraded: page.degraded });
      return page?.degraded === false && (await replays(stack)) === 1;
    },
    "pages are whole again",
    40_000,
  );
  heal();
  // None was short without saying so.
  expect(pages.filter(({ ids, degraded }) => !degraded && ids < 10)).toEqual([]);
  expect(pages.some(({ degraded }) => degraded)).toBe(true);
});

testWithStack(
  "an event that can never be applied does not hold up the recovery",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const { streams, reads } = stack;
    const before = drops(stack.world, READERS, 0, 5);
    await stack.publish(...before);
    await streams.settled(before.length);
    await progressRecorded(stack);
    const lost = drops(stack.world, READERS, 5, 5);
    await loseSince(stack, async () => {
      await streams.connection.jetstream().publish("drops.created", "{}");
      await stack.publish(...lost);
      await streams.settled(before.length + 1 + lost.length);
    });
    await eventually(async () => (await replays(stack)) === 1, "the loss is noticed and recovered from", 30_000);
    await expectLoaded(stack.redis, READERS, [...before, ...lost]);
    await eventually(async () => !(await reads.home("reader-0")).degraded, "pages are whole again");
  },
);

// Invariant 1.
testWithStack(
  "an event that fails alone becomes a dead letter and degrades nobody else's pages",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const { streams, reads, upstreams, world } = stack;
    const before = drops(world, READERS, 0, 5);
    await stack.publish(...before);
    await streams.settled(before.length);
    await reads.home("reader-0");
    await progressRecorded(stack);
    const lost = drops(world, READERS, 5, 5);
    world.follow("reader-0", "anna");
    const ill = { drop_id: "ill", user_id: "anna", visibility: "public" as const, created_at: Date.now() };
    world.post(ill);
    await loseSince(stack, async () => {
      await stack.publish(...lost, created(ill));
      await streams.settled(before.length + lost.length + 1);
      // From now on nothing can be had of anna's followers.
      upstreams.inject({ method: "GetFollowersList", user: "anna", code: status.INTERNAL });
    });
    await eventually(async () => (await replays(stack)) === 1, "the loss is noticed and recovered from", 30_000);
    await eventually(async () => !(await reads.home("reader-1")).degraded, "pages are whole again");
    const letters = await streams.all("DLQ");
    expect(letters.map(({ subject, headers }) => [subject, headers["Dlq-Consumer"]])).toEqual([
      ["dlq.exhausted.drop_created", "replay"],
    ]);
    expect(JSON.parse(String(letters[0]?.body))).toMatchObject({ drop_id: "ill" });
    await expectLoaded(stack.redis, ["reader-1"], [...before, ...lost, created(ill)]);
  },
);

/** Posts some drops, and reads the homes that have them. */
async function homesWithDrops({ publish, streams, world, reads }: Stack): Promise<TimelineEvent[]> {
  const before = drops(world, READERS, 0, 5);
  await publish(...before);
  await streams.settled(before.length);
  for (const reader of READERS) await reads.home(reader, { limit: 100 });
  return before;
}

// Invariants 5, 8.
testWithStack(
  "what an unavailable upstream holds up is set aside: only homes that may lack it are degraded, until it is applied",
  OPTIONS,
  async (stack) => {
    const { streams, upstreams, world, reads } = stack;
    const before = await homesWithDrops(stack);
    await reads.home("late");
    await progressRecorded(stack);
    world.follow("reader-0", "anna");
    const held = { drop_id: "held", user_id: "anna", visibility: "public" as const, created_at: Date.now() };
    world.post(held);
    // A follow is applied by reading drops: those of anna cannot be had either.
    const follow = followed("late", "anna", world.follow("late", "anna"));
    const lost = [...drops(world, READERS, 5, 5), created(held), follow];
    const heals: (() => void)[] = [];
    await loseSince(stack, async () => {
      await stack.publish(...lost);
      await streams.settled(before.length + lost.length);
      for (const method of ["GetFollowersList", "GetDropsByUserID"] as const)
        heals.push(upstreams.inject({ method, user: "anna", code: status.UNAVAILABLE }));
    });
    await eventually(async () => (await replays(stack)) === 1, "all else is recovered", 30_000);
    // The shared timelines have anna's drop; the homes of those who do not follow her have all of theirs.
    await expectLoaded(stack.redis, READERS.slice(1), [...before, ...lost]);
    const degraded = async (user: string) => (await reads.home(user, { limit: 100 })).degraded;
    await eventually(async () => !(await degraded("reader-1")), "homes without anna are whole");
    const local = await reads.local({ limit: 100 });
    expect([local.degraded, local.drop_ids.includes("held")]).toEqual([false, true]);
    for (const user of ["reader-0", "late"]) expect([user, await degraded(user)]).toEqual([user, true]);
    for (const heal of heals) heal();
    for (const user of ["reader-0", "late"]) {
      await eventually(async () => !(await degraded(user)), `the home of ${user} is whole`, 30_000);
      expect((await reads.home(user, { limit: 100 })).drop_ids).toContain("held");
    }
    expect(await streams.count("DLQ")).toBe(0);
  },
);

// Invariant 5.
testWithStack(
  "a home that lacks what was set aside is whole once its own events are handled, while others wait",
  OPTIONS,
  async (stack) => {
    const { streams, upstreams, world, reads } = stack;
    const before = await homesWithDrops(stack);
    await progressRecorded(stack);
    world.follow("reader-0", "anna");
    world.follow("reader-1", "arno");
    const held = ["anna", "arno"].map((user_id) => {
      return { drop_id: `held-${user_id}`, user_id, visibility: "public" as const, created_at: Date.now() };
    });
    world.post(...held);
    const heals = new Map<string, () => void>();
    await loseSince(stack, async () => {
      await stack.publish(...held.map(created));
      await streams.settled(before.length + held.length);
      for (const user of ["anna", "arno"])
        heals.set(user, upstreams.inject({ method: "GetFollowersList", user, code: status.UNAVAILABLE }));
    });
    await eventually(async () => (await replays(stack)) === 1, "all else is recovered", 30_000);
    const degraded = async (user: string) => (await reads.home(user, { limit: 100 })).degraded;
    await eventually(async () => !(await degraded("reader-2")), "other homes are whole");
    for (const user of ["reader-0", "reader-1"]) expect([user, await degraded(user)]).toEqual([user, true]);
    heals.get("arno")?.();
    await eventually(async () => !(await degraded("reader-1")), "the home of reader-1 is whole", 30_000);
    expect((await reads.home("reader-1", { limit: 100 })).drop_ids).toContain("held-arno");
    expect(await degraded("reader-0")).toBe(true);
  },
);

// Invariant 1.
testWithStack(
  "a redriven job is written only once the record in Redis would have it applied again after a loss",
  { ...OPTIONS, slow: true },
  async (stack) => {
    const { streams, redis, world } = stack;
    world.follow("bob", "alice");
    const before = drops(world, READERS, 0, 5);
    await stack.publish(...before);
    await streams.settled(before.length);
    await progressRecorded(stack);
    const admitted_at = Date.now() - 600_000;
    const job = { action: "add", event: "drop_created", drop_id: "late", user_id: "alice", created_at: admitted_at };
    const headers = newHeaders();
    headers.set("Dlq-Redrive-Count", "1");
    const body = JSON.stringify({ ...job, admitted_at, generation: "old", user_ids: ["bob"] });
    const minute = Math.floor(admitted_at / 60_000);
    const commands: { readonly time: string; readonly args: readonly string[] }[] = [];
    const monitor = await redis.monitor();
    monitor.on("monitor", (time: string, args: string[]) => commands.push({ time, args }));
    await streams.connection.jetstream().publish(`fanout.job.add.${minute}`, body, { headers });
    await eventually(async () => (await redis.zscore("timeline:home:bob", "late")) !== null, "the job is applied");
    monitor.disconnect();
    const covering = commands.find(
      ({ args: [, , , key, , from = ""] }) => key === RECORD && from !== "" && Number(from) <= admitted_at,
    );
    const writing = commands.find(
      ({ args }) => args[0] === "evalsha" && /late/.test(args.join()) && /bob/.test(args.join()),
    );
    // By the clock of Redis: even if it loses its last seconds now, the record that is left reaches back to the job.
    expect(Number(writing?.time) - Number(covering?.time)).toBeGreaterThanOrEqual(5);
    await progressRecorded(stack);
  },
);
