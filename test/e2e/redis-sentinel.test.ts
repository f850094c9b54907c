import { expect } from "@jest/globals";
import type { Redis } from "ioredis";
import { silent } from "../../src/kernel/logger.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { jsonOf, startCommand } from "../support/command.js";
import { becomes, eventually } from "../support/eventually.js";
import { expectTimelines } from "../support/oracle.js";
import { progressRecorded } from "../support/progress-recorded.js";
import { openReader } from "../support/reader.js";
import { type Sentinels, startSentinels, urlsOf } from "../support/sentinels.js";
import { launchService, type Service, untilReady } from "../support/service.js";
import { type Stack, testWithStack } from "../support/stack.js";
import { created, followed, publish, type TimelineEvent } from "../support/timeline-events.js";

const READERS = Array.from({ length: 12 }, (_, number) => `reader-${number}`);
const AUTHOR = "alice";
const SECRETS = { password: "hunter2marker-redis", sentinelPassword: "hunter2marker-sentinel" };
const OPTIONS = { service: false, timeoutMs: 120_000 } as const;

async function startGroup(stack: Stack): Promise<{ group: Sentinels; redis: Redis; env: { REDIS_URL: string } }> {
  const group = await startSentinels(SECRETS);
  stack.afterServices(() => group.stop());
  const redis = connectRedis(urlsOf(group.url()), silent) as Redis;
  stack.defer(() => redis.disconnect());
  await eventually(() => redis.status === "ready", "the test is connected");
  return { group, redis, env: { REDIS_URL: group.url() } };
}

/** Posts one drop after the other, also while Redis takes none: the producer does not say it again. */
function startPosting({ world }: Stack, redis: Redis) {
  const events: TimelineEvent[] = [];
  let missed = 0;
  let stopping = false;
  const ended = (async () => {
    for (let number = 0; !stopping; number++) {
      const drop = { drop_id: `d-${number}`, user_id: AUTHOR, visibility: "public" as const, created_at: Date.now() };
      world.post(drop);
      events.push(created(drop));
      await publish(redis, created(drop)).catch(() => missed++);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  return {
    events,
    missed: () => missed,
    stop: async () => {
      stopping = true;
      await ended;
    },
  };
}

async function recoveriesOf({ httpUrl }: Service): Promise<number> {
  const text = await (await fetch(`${httpUrl}/metrics`)).text();
  return Number(/timeline_redis_losses_total(?:\{[^}]*\})? (\d+)/.exec(text)?.[1] ?? 0);
}

/** Redis fails over while drops are posted; at the end every timeline has them all. */
async function expectComplete(stack: Stack, failover: (group: Sentinels) => Promise<void>): Promise<void> {
  const { world, streams } = stack;
  const edges = READERS.map((reader) => followed(reader, AUTHOR, world.follow(reader, AUTHOR)));
  const { group, redis, env } = await startGroup(stack);
  const services = [await stack.start({ env }), await stack.start({ env, roles: "fanout,api" })];
  const reads = openReader(services[0]?.grpcAddress as string);
  stack.defer(() => reads.close());
  for (const reader of READERS) await reads.home(reader);
  const runId = async () => /run_id:(\w+)/.exec(await redis.info("server"))?.[1];
  const former = await runId();
  const posting = startPosting(stack, redis);
  stack.defer(() => posting.stop());
  await eventually(() => posting.events.length > 50, "drops are posted");
  await progressRecorded({ redis });
  await failover(group);
  await eventually(
    () =>
      runId().then(
        (found) => found !== former,
        () => false,
      ),
    "the successor is used",
  );
  const atSuccessor = posting.events.length;
  await eventually(() => posting.events.length > atSuccessor + 50, "drops are posted to the successor");
  await posting.stop();
  expect(posting.missed()).toBeGreaterThan(0);
  const recoveries = async () => (await Promise.all(services.map(recoveriesOf))).reduce((sum, one) => sum + one, 0);
  await eventually(async () => (await recoveries()) > 0, "the loss is noticed and recovered from", 40_000);
  await becomes(() => expectTimelines(redis, [AUTHOR, ...READERS], [...edges, ...posting.events]), 60_000);
  await eventually(async () => !(await reads.home("reader-0")).degraded, "pages are whole again");
  expect(await streams.count("DLQ")).toBe(0);
  for (const service of services) expect(service.output() + service.errors()).not.toContain("hunter2marker");
}

// Invariants 1, 5, 8.
testWithStack("every home is complete after a master that sentinels follow was killed", OPTIONS, (stack) =>
  expectComplete(stack, async (group) => {
    const former = await group.master();
    former.kill("SIGKILL");
    await group.replaced(former);
  }),
);

// Invariants 1, 5, 8.
testWithStack(
  "every home is complete after a failover whose former master takes writes for a while",
  { ...OPTIONS, slow: true },
  (stack) => expectComplete(stack, (group) => group.failover()),
);

// Invariant 8.
testWithStack(
  "a wrong setting of sentinels ends the start, and sentinels that are away are waited for",
  OPTIONS,
  async (stack) => {
    const { group } = await startGroup(stack);
    const wrong = [
      [group.url({ sentinelPassword: "hunter2marker" }), /cannot start: Redis Sentinel \S+: WRONGPASS/],
      [group.url({ name: "other" }), /cannot start: Redis Sentinel \S+ knows no master named other/],
    ] as const;
    const launch = async (url: string) => {
      const service = await launchService({ ...stack.serviceOptions, redisUrl: url });
      stack.defer(() => service.stop());
      return service;
    };
    for (const [url, says] of wrong) {
      const service = await launch(url);
      expect(await service.exited).toMatchObject({ code: 1 });
      expect(service.errors()).toMatch(says);
      expect(service.output()).not.toContain("hunter2marker");
    }
    for (const sentinel of group.sentinels) sentinel.kill("SIGSTOP");
    const service = await launch(group.url());
    await eventually(() => /Redis is not available yet; the start waits/.test(service.output()), "the start waits");
    for (const sentinel of group.sentinels) sentinel.kill("SIGCONT");
    await untilReady(service);
    expect(await jsonOf(stack, ["author", "ls"], { env: { REDIS_URL: group.url() } })).toEqual([]);
    const refused = startCommand(stack, ["author", "ls"], { REDIS_URL: group.url({ name: "other" }) });
    expect(await refused.exited).toMatchObject({ code: 1 });
    expect(refused.errors()).toMatch(/knows no master named other; correct the name of the master in REDIS_URL/);
    expect(refused.errors()).not.toContain("hunter2marker");
  },
);
