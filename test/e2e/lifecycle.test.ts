import { rm } from "node:fs/promises";
import { expect, test } from "@jest/globals";
import { startNats, startRedis } from "../../src/brokers/index.js";
import { temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/facts.js";
import { expectTimelines } from "../support/oracle.js";
import { openReader } from "../support/reader.js";
import { freePorts, httpStatus, JWT_SECRET, launchService, runMain, untilReady } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, startStack, testWithStack } from "../support/stack.js";
import { created, deleted, type TimelineEvent } from "../support/timeline-events.js";

const START = Date.now() - 3_600_000;
const READERS = Array.from({ length: 40 }, (_, number) => `reader-${number}`);

/** Drops of one author with 40 followers. */
function load({ world }: Stack, count: number): TimelineEvent[] {
  for (const reader of READERS) world.follow(reader, "alice");
  const drops = Array.from({ length: count }, (_, number) => {
    return { drop_id: `load-${number}`, user_id: "alice", visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

/** All keys hold what they must; the follows were there before any event. */
async function expectLanded({ redis }: Stack, history: readonly TimelineEvent[]): Promise<void> {
  const edges = READERS.map((follower_id) => {
    return { channel: "user_followed" as const, payload: { follower_id, following_id: "alice", version: 1 } };
  });
  await expectTimelines(redis, ["alice", ...READERS], [...edges, ...history]);
}

testWithStack(
  "SIGTERM under load ends with 0 and loses nothing; another process goes on",
  {},
  async (stack) => {
    const { redis, service, streams } = stack;
    await stack.start();
    const history = load(stack, 600);
    const stream = await openEvents(service.httpUrl, "reader-1");
    await stack.publish(...history.slice(0, 400));
    await eventually(async () => (await redis.zcard("timeline:home:reader-0")) > 20, "the load is under way");
    const ending = service.stop();
    await stack.publish(...history.slice(400));
    expect(await ending).toEqual({ code: 0, signal: null });
    await stream.ended;
    expect(service.errors()).not.toMatch(/^\s+at /m);
    await streams.settled(history.length, 40_000);
    await expectLanded(stack, history);
    expect(await streams.count("DLQ")).toBe(0);
  },
  90_000,
);

testWithStack("SIGTERM when idle, and SIGINT, end with 0 and soon", {}, async (stack) => {
  const second = await stack.start();
  const begin = Date.now();
  expect(await stack.service.stop()).toEqual({ code: 0, signal: null });
  second.signal("SIGINT");
  expect((await second.exited).code).toBe(0);
  expect(Date.now() - begin).toBeLessThan(10_000);
});

testWithStack(
  "a process that is the only one resumes its work after SIGTERM and a start",
  {},
  async (stack) => {
    const history = load(stack, 300);
    await stack.publish(...history);
    await eventually(async () => (await stack.streams.count("DROPS")) === history.length, "all are admitted");
    expect((await stack.service.stop()).code).toBe(0);
    await stack.start();
    await stack.streams.settled(history.length, 40_000);
    await expectLanded(stack, history);
  },
  90_000,
);

testWithStack(
  "what happened while no bridge listened is found in the upstreams",
  {},
  async (stack) => {
    const { world, streams } = stack;
    const history = load(stack, 20);
    await stack.publish(...history);
    await streams.settled(history.length);
    await stack.service.crash();
    const lost = { drop_id: "while-away", user_id: "alice", visibility: "public" as const, created_at: START + 1_000 };
    world.post(lost);
    world.remove("load-3");
    await stack.start();
    const all = [...history, created(lost), deleted("load-3", "alice")];
    await streams.settled(all.length, 30_000);
    await expectLanded(stack, all);
  },
  60_000,
);

const COMPLETE = {
  REDIS_URL: "redis://127.0.0.1:1",
  NATS_URL: "nats://127.0.0.1:1",
  TIMELINE_USER_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_POST_SERVICE_ADDR: "127.0.0.1:1",
  TIMELINE_GRPC_ADDR: "127.0.0.1:0",
  TIMELINE_HTTP_ADDR: "127.0.0.1:0",
  TIMELINE_JWT_SECRET: JWT_SECRET,
};

/** Starts with these variables and expects a refusal that names all of `faults`. */
async function expectRefusal(env: Readonly<Record<string, string>>, faults: readonly string[]): Promise<void> {
  const refused = runMain(["serve"], env);
  const timer = setTimeout(() => refused.signal("SIGKILL"), 10_000);
  const ending = await refused.exited;
  clearTimeout(timer);
  expect({ ...ending, text: refused.errors() }).toMatchObject({ code: 2, signal: null });
  for (const fault of faults) expect(refused.errors()).toContain(fault);
  expect(refused.errors()).not.toMatch(/^\s+at /m);
  expect(refused.errors()).not.toContain(JWT_SECRET);
}

test("a bad configuration is refused with all its faults at once, code 2 and no stack trace", async () => {
  const faulty = {
    ...{ ...COMPLETE, REDIS_URL: "not a url", NATS_URL: "http://", TIMELINE_ROLES: "bridge,juggler" },
    ...{ TIMELINE_MAX_ENTRIES: "many", TIMELINE_FANOUT_AUDIENCE: "some", TIMELINE_LOG_LEVEL: "loud" },
    ...{
      TIMELINE_GRPC_ADDR: "nowhere",
      TIMELINE_FANOUT_MAX_ATTEMPTS: "0",
      TIMELINE_FANOUT_CHUNK_SIZE: "-5",
      TIMELINE_TYPO: "1",
    },
  };
  const names = Object.keys(faulty).filter((name) => !["TIMELINE_JWT_SECRET", "TIMELINE_HTTP_ADDR"].includes(name));
  await expectRefusal(
    faulty,
    names.filter((name) => !name.endsWith("SERVICE_ADDR")),
  );
});

test("an unknown variable of ours is refused, a stranger's is not our business", async () => {
  await expectRefusal({ ...COMPLETE, TIMELINE_MAX_ENTIRES: "50", OTHER_TIMELINE: "x" }, ["TIMELINE_MAX_ENTIRES"]);
});

test("a gateway without means to check tokens is refused", async () => {
  const { TIMELINE_JWT_SECRET: _secret, ...rest } = COMPLETE;
  await expectRefusal(rest, ["TIMELINE_JWT_SECRET"]);
  await expectRefusal({ ...rest, TIMELINE_ROLES: "gateway" }, ["TIMELINE_JWT_SECRET"]);
});

test("roles that need upstreams are refused without their addresses", async () => {
  const { TIMELINE_USER_SERVICE_ADDR: _users, TIMELINE_POST_SERVICE_ADDR: _posts, ...rest } = COMPLETE;
  await expectRefusal(rest, ["TIMELINE_USER_SERVICE_ADDR", "TIMELINE_POST_SERVICE_ADDR"]);
});

test("a service started before Redis and NATS waits for them and becomes ready", async () => {
  const stack = await startStack({ service: false });
  const folders = await Promise.all([temporaryFolder("late-redis"), temporaryFolder("late-nats")]);
  const [redisPort, natsPort] = await freePorts();
  const late = { redisUrl: `redis://127.0.0.1:${redisPort}`, natsUrl: `nats://127.0.0.1:${natsPort}` };
  const service = await launchService({ ...stack.serviceOptions, ...late });
  try {
    await eventually(async () => (await httpStatus(`${service.httpUrl}/healthz`)) === 200, "it lives");
    expect(await httpStatus(`${service.httpUrl}/readyz`)).not.toBe(200);
    const nats = await startNats({ dir: folders[1] as string, port: natsPort });
    stack.defer(() => nats.stop());
    expect(await httpStatus(`${service.httpUrl}/readyz`)).not.toBe(200);
    const redis = await startRedis({ dir: folders[0] as string, port: redisPort });
    stack.defer(() => redis.stop());
    await untilReady(service);
    const reads = openReader(service.grpcAddress);
    stack.defer(() => reads.close());
    expect(await reads.home("anybody")).toMatchObject({ drop_ids: [], degraded: false });
    expect((await service.stop()).code).toBe(0);
  } catch (error) {
    throw new Error(`${String(error)}\n${service.logs()}`);
  } finally {
    await service.stop();
    await stack.stop();
    for (const folder of folders) await rm(folder, { recursive: true, force: true });
  }
});
