import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { becomes, eventually } from "../support/eventually.js";
import { expectTimelines } from "../support/oracle.js";
import { type Stack, type StackOptions, testWithStack } from "../support/stack.js";
import { created, followed, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const AUTHORS = ["alice", "anna", "arno", "axel", "abel", "asta"];
const READERS = Array.from({ length: 30 }, (_, number) => `reader-${number}`);
/** Time that something stays away: far longer than a few quick attempts take. */
const AWAY_MS = 3_000;
/** Attempts that follow each other fast, so that an outage taken for poison would show. */
const IMPATIENT: StackOptions = {
  env: { TIMELINE_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" },
  timeoutMs: 120_000,
};

function load({ world }: Stack, count: number): TimelineEvent[] {
  for (const reader of READERS) for (const author of AUTHORS) world.follow(reader, author);
  const drops = Array.from({ length: count }, (_, number) => {
    const user_id = AUTHORS[number % AUTHORS.length] ?? "alice";
    return { drop_id: `load-${number}`, user_id, visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

async function expectLanded(stack: Stack, history: readonly TimelineEvent[]): Promise<void> {
  await stack.streams.settledWith(history.length, 60_000);
  expect(await stack.streams.count("DLQ")).toBe(0);
  const edges = READERS.flatMap((reader) => AUTHORS.map((author) => followed(reader, author, 1)));
  await expectTimelines(stack.redis, [...AUTHORS, ...READERS], [...edges, ...history]);
}

const FAULTS = [
  { name: "UserService UNAVAILABLE", fault: { method: "GetFollowersList", code: status.UNAVAILABLE }, slow: false },
  { name: "UserService INTERNAL", fault: { method: "GetFollowersList", code: status.INTERNAL }, slow: true },
  { name: "UserService hanging", fault: { method: "GetFollowersList", delayMs: 60_000 }, slow: true },
  { name: "everything UNAVAILABLE", fault: { code: status.UNAVAILABLE }, slow: true },
  { name: "everything INTERNAL", fault: { code: status.INTERNAL }, slow: false },
] as const;

for (const { name, fault, slow } of FAULTS) {
  const options = { ...IMPATIENT, slow };
  // Invariant 8.
  testWithStack(`upstreams away under load cost no event an attempt (${name})`, options, async (stack) => {
    const history = load(stack, 120);
    await stack.publish(...history.slice(0, 40));
    const heal = stack.upstreams.inject(fault);
    await stack.publish(...history.slice(40));
    // Time itself is the fault here: the outage must outlast every attempt that might be spent.
    await delay(AWAY_MS);
    const [letters, unfinished] = [await stack.streams.count("DLQ"), await stack.streams.unfinished()];
    heal();
    expect(letters).toBe(0);
    expect(unfinished).toBeGreaterThan(0);
    await expectLanded(stack, history);
  });
}

// Invariant 8.
testWithStack(
  "an upstream that breaks in the middle of steady traffic of many authors costs no event an attempt",
  { slow: true, env: { TIMELINE_RETRY_BASE_MS: "50", TIMELINE_MAX_ATTEMPTS: "3" }, timeoutMs: 120_000 },
  async (stack) => {
    const { world, streams, upstreams } = stack;
    const post = async (number: number): Promise<TimelineEvent> => {
      const drop = { drop_id: `many-${number}`, user_id: `author-${number}`, created_at: START + number };
      world.follow("reader-0", drop.user_id);
      world.post(drop);
      const event = created({ ...drop, visibility: "public" });
      await stack.publish(event);
      return event;
    };
    for (let number = 0; number < 40; number++) await post(number);
    await streams.settledWith(40);
    const heal = upstreams.inject({ method: "GetFollowersList", code: status.INTERNAL });
    // One by one, and slowly: each of them could spend its attempts before the next one fails.
    for (let number = 40; number < 50; number++) {
      await post(number);
      await delay(AWAY_MS / 10);
    }
    const [letters, unfinished] = [await streams.count("DLQ"), await streams.unfinished()];
    heal();
    expect(letters).toBe(0);
    expect(unfinished).toBeGreaterThan(0);
    await streams.settledWith(50, 60_000);
    expect(await stack.redis.zcard("timeline:home:reader-0")).toBe(50);
  },
);

/** Publishes everything and breaks something while all of it is in the log and some of it is not done. */
async function breakUnderLoad(stack: Stack, history: readonly TimelineEvent[], broken: () => unknown): Promise<void> {
  const slow = stack.upstreams.inject({ method: "GetFollowersList", delayMs: 300 });
  // The drops of one author wait until that is healed.
  const held = stack.upstreams.inject({ method: "GetFollowersList", user: "abel", code: status.UNAVAILABLE });
  await stack.publish(...history);
  await eventually(async () => (await stack.streams.count("DROPS")) === history.length, "all are admitted");
  await broken();
  expect(await stack.streams.unfinished()).toBeGreaterThan(0);
  slow();
  held();
}

// Invariant 8.
testWithStack(
  "Redis stopped for a while under load: nothing is lost or given up",
  { ...IMPATIENT, slow: true },
  async (stack) => {
    const history = load(stack, 300);
    await breakUnderLoad(stack, history, () => stack.redisServer.kill("SIGSTOP"));
    await delay(AWAY_MS);
    stack.redisServer.kill("SIGCONT");
    await expectLanded(stack, history);
  },
);

// Invariant 1.
testWithStack("Redis killed and back with its data: nothing admitted is lost or given up", IMPATIENT, async (stack) => {
  const history = load(stack, 300);
  await breakUnderLoad(stack, history, () => killed(stack.redisServer));
  await delay(AWAY_MS);
  const { dir, port } = stack.redisServer;
  const again = await startRedis({ dir, port, appendonly: true });
  stack.afterServices(() => again.stop());
  await expectLanded(stack, history);
});

testWithStack("Redis killed and back empty: reads heal from the upstreams and the log", IMPATIENT, async (stack) => {
  const { reads, redisServer, world } = stack;
  const history = load(stack, 100);
  await stack.publish(...history);
  await stack.streams.settled(history.length);
  await killed(redisServer);
  const again = await startRedis({ dir: `${redisServer.dir}/empty`, port: redisServer.port });
  stack.afterServices(() => again.stop());
  const expected = world.homeOf("reader-0").map(({ drop_id }) => drop_id);
  for (const read of [(query: object) => reads.home("reader-0", query), reads.local, reads.global]) {
    await becomes(async () => {
      const page = await read({ limit: 100 });
      if (!page.degraded) expect(page.drop_ids).toEqual(expected);
      expect(page.degraded).toBe(false);
    });
  }
});

// Invariant 1.
testWithStack("NATS killed and back with its data under load: nothing is lost", IMPATIENT, async (stack) => {
  const history = load(stack, 300);
  await stack.publish(...history.slice(0, 200));
  await eventually(async () => (await stack.streams.count("DROPS")) >= 100, "some are admitted");
  await killed(stack.natsServer);
  await stack.publish(...history.slice(200));
  await delay(AWAY_MS);
  const { dir, port } = stack.natsServer;
  const again = await startNats({ dir, port });
  stack.afterServices(() => again.stop());
  await expectLanded(stack, history);
});

async function killed(server: Stack["redisServer"]): Promise<void> {
  server.kill("SIGKILL");
  await server.exited;
}
