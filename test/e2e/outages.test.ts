import { setTimeout as delay } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { startNats, startRedis } from "../../src/brokers/index.js";
import { eventually } from "../support/facts.js";
import { expectTimelines } from "../support/oracle.js";
import { type Stack, type StackOptions, testWithStack } from "../support/stack.js";
import { created, followed, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const AUTHORS = ["alice", "anna", "arno", "axel", "abel", "asta"];
const READERS = Array.from({ length: 30 }, (_, number) => `reader-${number}`);
/** How long something stays away: far longer than a few quick attempts take. */
const AWAY_MS = 4_000;
/** Attempts that follow each other fast, so that an outage taken for poison would show. */
const IMPATIENT: StackOptions = { env: { TIMELINE_FANOUT_MAX_ATTEMPTS: "2", TIMELINE_RETRY_BASE_MS: "50" } };

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
  await stack.streams.settled(history.length, 60_000);
  expect(await stack.streams.count("DLQ")).toBe(0);
  const edges = READERS.flatMap((reader) => AUTHORS.map((author) => followed(reader, author, 1)));
  await expectTimelines(stack.redis, [...AUTHORS, ...READERS], [...edges, ...history]);
}

for (const method of ["GetFollowersList", undefined] as const) {
  const name = method ?? "every method";
  for (const fault of [{ code: status.UNAVAILABLE }, { code: status.INTERNAL }, { delayMs: 60_000 }] as const) {
    const how = "code" in fault ? (status[fault.code] ?? "failing") : "hanging";
    testWithStack(
      `upstreams away under load (${name}: ${how}) cost no event an attempt`,
      IMPATIENT,
      async (stack) => {
        const history = load(stack, 120);
        await stack.publish(...history.slice(0, 40));
        const heal = stack.upstreams.inject({ ...(method === undefined ? {} : { method }), ...fault });
        await stack.publish(...history.slice(40));
        // Time itself is the fault here: the outage must outlast every attempt that might be spent.
        await delay(AWAY_MS);
        const letters = await stack.streams.count("DLQ");
        heal();
        expect(letters).toBe(0);
        await expectLanded(stack, history);
      },
      120_000,
    );
  }
}

testWithStack(
  "Redis stopped for a while under load: nothing is lost or given up",
  IMPATIENT,
  async (stack) => {
    const history = load(stack, 300);
    await stack.publish(...history);
    await eventually(async () => (await stack.streams.count("DROPS")) === history.length, "all are admitted");
    stack.redisServer.kill("SIGSTOP");
    await delay(AWAY_MS);
    stack.redisServer.kill("SIGCONT");
    await expectLanded(stack, history);
  },
  120_000,
);

testWithStack(
  "Redis killed and started again with its data under load: nothing is lost or given up",
  IMPATIENT,
  async (stack) => {
    const history = load(stack, 320);
    await stack.publish(...history.slice(0, 300));
    await eventually(async () => (await stack.streams.count("DROPS")) >= 300, "the first are admitted");
    stack.redisServer.kill("SIGKILL");
    await stack.redisServer.exited;
    await delay(AWAY_MS);
    const { dir, port } = stack.redisServer;
    const again = await startRedis({ dir, port, appendonly: true });
    try {
      // The last 20 could not be published while Redis was away; the upstreams tell of them.
      await expectLanded(stack, history);
    } finally {
      await again.stop();
    }
  },
  120_000,
);

testWithStack(
  "Redis killed and started again empty: reads and writes go on from the log",
  IMPATIENT,
  async (stack) => {
    const history = load(stack, 100);
    await stack.publish(...history);
    await stack.streams.settled(history.length);
    stack.redisServer.kill("SIGKILL");
    await stack.redisServer.exited;
    const again = await startRedis({ dir: `${stack.redisServer.dir}/empty`, port: stack.redisServer.port });
    try {
      const expected = stack.world
        .homeOf("reader-0")
        .map(({ drop_id }) => drop_id)
        .slice(0, 100);
      for (const read of [
        (query: object) => stack.reads.home("reader-0", query),
        stack.reads.local,
        stack.reads.global,
      ]) {
        await eventually(async () => {
          const page = await read({ limit: 100 });
          if (!page.degraded) expect(page.drop_ids).toEqual(expected);
          return !page.degraded || "degraded";
        }, "a whole page");
      }
    } finally {
      await again.stop();
    }
  },
  120_000,
);

testWithStack(
  "NATS killed and started again with its data under load: nothing admitted is lost",
  IMPATIENT,
  async (stack) => {
    const history = load(stack, 300);
    await stack.publish(...history.slice(0, 200));
    await eventually(async () => (await stack.streams.count("DROPS")) >= 100, "some are admitted");
    const { dir, port } = stack.natsServer;
    stack.natsServer.kill("SIGKILL");
    await stack.natsServer.exited;
    await stack.publish(...history.slice(200));
    await delay(AWAY_MS / 2);
    const again = await startNats({ dir, port });
    try {
      await expectLanded(stack, history);
    } finally {
      await stack.service.stop();
      await again.stop();
    }
  },
  120_000,
);
