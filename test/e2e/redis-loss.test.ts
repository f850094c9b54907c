import { expect } from "@jest/globals";
import { type Broker, startRedis } from "../../src/brokers/index.js";
import { eventually } from "../support/facts.js";
import { expectTimelines } from "../support/oracle.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, deleted, followed, type TimelineEvent, unfollowed } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
/** Pages of five followers: alice's audience is queued in chunks. */
const OPTIONS = { env: { TIMELINE_FANOUT_CHUNK_SIZE: "5" }, timeoutMs: 60_000 };

function drops({ world }: Stack, from: number, count: number): TimelineEvent[] {
  for (const reader of READERS) if (!world.follows(reader, "alice")) world.follow(reader, "alice");
  const fresh = Array.from({ length: count }, (_, number) => ({
    drop_id: `load-${from + number}`,
    user_id: "alice",
    visibility: "public" as const,
    created_at: START + from + number,
  }));
  world.post(...fresh);
  return fresh.map(created);
}

/** Waits until fan-out has noted how far it is; from then on a loss is noticed. */
async function noted({ redis }: Stack): Promise<void> {
  const from = async () => Number(await redis.hget("timeline:x:continuity:{0}", "from"));
  const before = Date.now();
  await eventually(async () => (await from()) > before, "the note is newer than what was applied", 20_000);
}

/** Kills Redis and starts it with what it had saved; what it wrote since is lost, as in a failover. */
async function loseSince({ redis, redisServer }: Stack, during: () => Promise<void>): Promise<Broker> {
  await redis.config("SET", "appendonly", "no");
  await redis.save();
  await during();
  redisServer.kill("SIGKILL");
  await redisServer.exited;
  return startRedis({ dir: redisServer.dir, port: redisServer.port });
}

/** The metric that counts replays. */
async function replays(stack: Stack): Promise<number> {
  const text = await (await fetch(`${stack.service.httpUrl}/metrics`)).text();
  return Number(/timeline_redis_losses_total(?:\{[^}]*\})? (\d+)/.exec(text)?.[1] ?? 0);
}

testWithStack("what Redis had confirmed and lost is applied again from the log", OPTIONS, async (stack) => {
  const { streams, world, reads } = stack;
  const before = drops(stack, 0, 20);
  await stack.publish(...before);
  await streams.settled(before.length);
  for (const reader of READERS) await reads.home(reader);
  await noted(stack);
  const lost = drops(stack, 20, 30);
  world.remove("load-3");
  const gone = [deleted("load-3", "alice"), unfollowed("reader-1", "alice", world.unfollow("reader-1", "alice"))];
  const again = await loseSince(stack, async () => {
    await stack.publish(...lost, ...gone);
    await streams.settled(before.length + lost.length + gone.length);
  });
  try {
    await eventually(async () => (await replays(stack)) === 1, "the loss is noticed and mended", 30_000);
    await streams.settledWith(before.length + lost.length + gone.length);
    const edges = READERS.map((reader) => followed(reader, "alice", 1));
    // What is in the sets themselves, before any read could have healed them.
    await expectTimelines(stack.redis, ["alice", ...READERS], [...edges, ...before, ...lost, ...gone]);
    await eventually(async () => !(await reads.home("reader-0")).degraded, "pages are whole again");
    expect(await streams.count("DLQ")).toBe(0);
  } finally {
    await stack.service.stop();
    await again.stop();
  }
});

testWithStack("while what was lost is being applied again pages say so", OPTIONS, async (stack) => {
  const { streams, upstreams, reads } = stack;
  const before = drops(stack, 0, 5);
  await stack.publish(...before);
  await streams.settled(before.length);
  expect((await reads.home("reader-0", { limit: 100 })).degraded).toBe(false);
  await noted(stack);
  const lost = drops(stack, 5, 5);
  const again = await loseSince(stack, async () => {
    await stack.publish(...lost);
    await streams.settled(before.length + lost.length);
  });
  try {
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
  } finally {
    await stack.service.stop();
    await again.stop();
  }
});

testWithStack("an event that can never be applied does not hold up the mending", OPTIONS, async (stack) => {
  const { streams, reads } = stack;
  const before = drops(stack, 0, 5);
  await stack.publish(...before);
  await streams.settled(before.length);
  await noted(stack);
  const lost = drops(stack, 5, 5);
  const again = await loseSince(stack, async () => {
    await streams.connection.jetstream().publish("drops.created", "{}");
    await stack.publish(...lost);
    await streams.settled(before.length + 1 + lost.length);
  });
  try {
    await eventually(async () => (await replays(stack)) === 1, "the loss is noticed and mended", 30_000);
    const edges = READERS.map((reader) => followed(reader, "alice", 1));
    await expectTimelines(stack.redis, ["alice", ...READERS], [...edges, ...before, ...lost]);
    await eventually(async () => !(await reads.home("reader-0")).degraded, "pages are whole again");
  } finally {
    await stack.service.stop();
    await again.stop();
  }
});
