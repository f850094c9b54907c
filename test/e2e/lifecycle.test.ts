import { once } from "node:events";
import { rm } from "node:fs/promises";
import { credentials, status } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { ServerReflectionClient } from "../../src/gen/grpc/reflection/v1/reflection.js";
import { startNats, startRedis } from "../../src/sandbox/brokers/index.js";
import { temporaryFolder } from "../support/brokers.js";
import { startCommand } from "../support/command.js";
import { eventually } from "../support/eventually.js";
import { expectTimelines } from "../support/oracle.js";
import { openReader } from "../support/reader.js";
import { samplesOf } from "../support/scrape.js";
import {
  type Ending,
  freePorts,
  httpStatus,
  launchService,
  type Service,
  type ServiceProcess,
  untilReady,
} from "../support/service.js";
import { openEvents, requestEvents } from "../support/sse.js";
import { type Stack, sharedStack, startStack, testWithStack } from "../support/stack.js";
import { slowTest, quickTest as test } from "../support/suite.js";
import { created, followed, type TimelineEvent } from "../support/timeline-events.js";
import { tokenOf } from "../support/tokens.js";

const START = Date.now() - 3_600_000;
const READERS = Array.from({ length: 40 }, (_, number) => `reader-${number}`);

/** Her followers cannot be asked for while work is held up, so that her drop waits. */
const HELD = "bella";
const AUTHORS = ["alice", HELD];

/** Drops of one author with 40 followers, after the first, which is of another one. */
function load({ world }: Stack, count: number): TimelineEvent[] {
  for (const reader of READERS) for (const author of AUTHORS) world.follow(reader, author);
  const drops = Array.from({ length: count }, (_, number) => {
    const user_id = number === 0 ? HELD : "alice";
    return { drop_id: `load-${number}`, user_id, visibility: "public" as const, created_at: START + number };
  });
  world.post(...drops);
  return drops.map(created);
}

/** All keys hold what they must; the follows were there before any event. */
async function expectLanded({ redis }: Stack, history: readonly TimelineEvent[]): Promise<void> {
  const edges = READERS.flatMap((reader) => AUTHORS.map((author) => followed(reader, author, 1)));
  await expectTimelines(redis, [...AUTHORS, ...READERS], [...edges, ...history]);
}

/** Ends a service by SIGTERM while there is work: nobody can finish it between the look and the signal. */
async function stopAtWork({ streams }: Stack, service: Service, ...others: readonly Service[]): Promise<Ending> {
  for (const one of [service, ...others]) one.signal("SIGSTOP");
  const unfinished = await streams.unfinished();
  for (const other of others) other.signal("SIGCONT");
  // It goes on with the signal pending.
  const ending = await service.stop();
  expect(unfinished).toBeGreaterThan(0);
  return ending;
}

/** Holds every event up a little, and one until this is healed, so that work waits. */
function slowly({ upstreams }: Stack): () => void {
  const slow = upstreams.inject({ method: "GetFollowersList", delayMs: 100 });
  const held = upstreams.inject({ method: "GetFollowersList", user: HELD, code: status.UNAVAILABLE });
  return () => {
    slow();
    held();
  };
}

// Invariant 1.
testWithStack("SIGTERM under load: code 0, streams ended, nothing lost", { timeoutMs: 90_000 }, async (stack) => {
  const { redis, service, streams } = stack;
  const other = await stack.start();
  const history = load(stack, 600);
  const stream = await openEvents(service.httpUrl, "reader-1");
  const heal = slowly(stack);
  await stack.publish(...history.slice(0, 400));
  await eventually(async () => (await redis.zcard("timeline:home:reader-0")) > 20, "the load is under way");
  const ending = stopAtWork(stack, service, other);
  await stack.publish(...history.slice(400));
  heal();
  expect(await ending).toEqual({ code: 0, signal: null });
  await stream.ended;
  expect(service.errors()).not.toMatch(/^\s+at /m);
  await streams.settledWith(history.length, 40_000);
  await expectLanded(stack, history);
  expect(await streams.count("DLQ")).toBe(0);
});

// Invariant 8.
testWithStack("deploys under load cost no event an attempt", { ...impatient(), slow: true }, async (stack) => {
  const history = load(stack, 400);
  let service = stack.service;
  const heal = slowly(stack);
  for (let deploy = 0; deploy < 2; deploy += 1) {
    await stack.publish(...history.slice(deploy * 200, deploy * 200 + 200));
    const admitted = async () => (await stack.streams.count("DROPS")) === deploy * 200 + 200;
    await eventually(admitted, "all are admitted");
    expect((await stopAtWork(stack, service)).code).toBe(0);
    service = await stack.start();
  }
  heal();
  await stack.streams.settledWith(history.length, 60_000);
  expect(await stack.streams.count("DLQ")).toBe(0);
  await expectLanded(stack, history);
});

/** One attempt only: whatever a deploy interrupts must not count as one. */
function impatient(): { env: Record<string, string>; timeoutMs: number } {
  return { env: { TIMELINE_MAX_ATTEMPTS: "1", TIMELINE_RETRY_BASE_MS: "50" }, timeoutMs: 90_000 };
}

testWithStack(
  "what a process hands back on SIGTERM is taken up at once",
  // The server itself would give a message to somebody else after this time only, long after the test.
  { env: { TIMELINE_ACK_WAIT_MS: "600000" }, timeoutMs: 90_000 },
  async (stack) => {
    const history = load(stack, 300);
    const heal = slowly(stack);
    await stack.publish(...history);
    await eventually(async () => (await stack.streams.count("DROPS")) === history.length, "all are admitted");
    expect((await stopAtWork(stack, stack.service)).code).toBe(0);
    heal();
    await stack.start();
    await stack.streams.settledWith(history.length, 60_000);
    await expectLanded(stack, history);
  },
);

/** Lines of a process's log with this text. */
function logged(service: ServiceProcess, message: string): Record<string, unknown>[] {
  const lines = service
    .output()
    .split("\n")
    .filter((line) => line !== "");
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter(({ msg }) => msg === message);
}

const onStack = sharedStack();

onStack("a start that fails is an error in the log", async (stack) => {
  const second = await launchService({
    ...stack.serviceOptions,
    env: { TIMELINE_HTTP_ADDR: stack.service.httpUrl.replace("http://", "") },
  });
  stack.defer(() => second.crash());
  expect((await second.exited).code).toBe(1);
  expect(logged(second, "cannot start")).toMatchObject([
    { level: "error", error: expect.stringMatching(/^TIMELINE_HTTP_ADDR=.* \(EADDRINUSE\)$/) },
  ]);
});

onStack("SIGTERM when idle, and SIGINT, end with 0; what a process says then is in its log alone", async (stack) => {
  const second = await stack.start();
  expect(await stack.service.stop()).toEqual({ code: 0, signal: null });
  expect(logged(stack.service, "finishing what is in flight")).toMatchObject([{ level: "info", signal: "SIGTERM" }]);
  expect(logged(stack.service, "closed")).toHaveLength(1);
  expect(stack.service.errors()).toBe("");
  second.signal("SIGINT");
  expect((await second.exited).code).toBe(0);
});

testWithStack(
  "a close that fails is logged as an error, stops no other, and ends with 1",
  { env: { AVION_TEST_FAILPOINTS: "close=throw@NATS" } },
  async (stack) => {
    expect(await stack.service.stop()).toEqual({ code: 1, signal: null });
    expect(logged(stack.service, "closing failed")).toMatchObject([
      { level: "error", what: "NATS", error: "failpoint close" },
    ]);
    const list = startCommand(stack, ["dlq", "ls"]);
    expect((await list.exited).code).toBe(0);
    expect(list.errors()).toBe("avion-timeline: closing failed: NATS: failpoint close\n");
  },
);

testWithStack(
  "a close that never ends is named in the log, and ends with 1",
  { slow: true, env: { AVION_TEST_FAILPOINTS: "close=hang@NATS", TIMELINE_SHUTDOWN_GRACE_MS: "0" } },
  async (stack) => {
    expect(await stack.service.stop()).toEqual({ code: 1, signal: null });
    expect(logged(stack.service, "closing takes too long; the process ends without it")).toMatchObject([
      { level: "error", what: "NATS" },
    ]);
  },
);

testWithStack(
  "what waits for NATS and a client that takes no answers share one grace: SIGTERM ends with 0",
  // Two graces would take longer than a process may close: ten seconds more than one.
  { slow: true, roles: "bridge,api", env: { TIMELINE_SHUTDOWN_GRACE_MS: "11000" }, timeoutMs: 90_000 },
  async (stack) => {
    const { natsServer, service } = stack;
    const client = new ServerReflectionClient(service.grpcAddress, credentials.createInsecure());
    stack.defer(() => client.close());
    const unread = client.serverReflectionInfo();
    unread.on("error", () => undefined);
    for (let n = 0; n < 200; n++) unread.write({ host: "h".repeat(64 * 1024), list_services: "" });
    await once(unread, "readable");
    natsServer.kill("SIGKILL");
    await natsServer.exited;
    await stack.publish(created({ drop_id: "held", user_id: "alice", visibility: "public", created_at: START }));
    const held = async (): Promise<boolean> => {
      const samples = samplesOf(await (await fetch(`${service.httpUrl}/metrics`)).text());
      return samples.some(({ name, value }) => name === "timeline_bridge_in_flight" && value === 1);
    };
    await eventually(held, "the bridge holds the event");
    expect(await service.stop()).toEqual({ code: 0, signal: null });
    expect(logged(service, "events were not admitted before the end")).toHaveLength(1);
  },
);

slowTest("a start that fails ends, also where a close never does", async () => {
  const stack = await startStack({ service: false });
  const taken = await stack.start();
  const second = await launchService({
    ...stack.serviceOptions,
    env: {
      TIMELINE_HTTP_ADDR: taken.httpUrl.replace("http://", ""),
      AVION_TEST_FAILPOINTS: "close=hang@telemetry",
      TIMELINE_SHUTDOWN_GRACE_MS: "0",
    },
  });
  try {
    expect((await second.exited).code).toBe(1);
    expect(logged(second, "closing takes too long; the process ends without it")).toMatchObject([
      { level: "error", what: "telemetry" },
    ]);
  } finally {
    await second.crash();
    await stack.stop();
  }
});

for (const away of [["redisServer"], ["natsServer"], ["redisServer", "natsServer"]] as const) {
  testWithStack(`SIGTERM while ${away.join(" and ")} is unavailable ends with 0`, {}, async (stack) => {
    for (const server of away) {
      stack[server].kill("SIGKILL");
      await stack[server].exited;
    }
    expect(await stack.service.stop()).toEqual({ code: 0, signal: null });
  });
}

async function expectUnavailable({ httpUrl }: Service, path: string, method = "GET"): Promise<void> {
  const answer = await fetch(`${httpUrl}${path}`, { method });
  expect([answer.status, answer.headers.get("content-type")]).toEqual([503, "application/problem+json"]);
  expect(answer.headers.get("retry-after")).toMatch(/^[1-9]$/);
  await answer.arrayBuffer();
}

/** While it starts, a client whose token is good comes back by itself. */
async function expectRefusedForNow({ httpUrl }: Service): Promise<void> {
  const token = await tokenOf("anybody");
  const stream = await requestEvents(httpUrl, { token });
  await stream.ended;
  expect([stream.status, stream.comments, stream.retryMs()]).toEqual([
    200,
    ["the service is starting"],
    expect.any(Number),
  ]);
  const other = await requestEvents(httpUrl, { token, headers: { accept: "*/*" } });
  expect([other.status, other.headers["retry-after"]]).toEqual([503, expect.stringMatching(/^[1-9]$/)]);
  for (const request of [{}, { token: "nonsense" }]) expect((await requestEvents(httpUrl, request)).status).toBe(401);
}

test("a service started before Redis and NATS waits for them, answers 503 meanwhile, and becomes ready", async () => {
  const stack = await startStack({ service: false });
  const folders = await Promise.all([temporaryFolder("late-redis"), temporaryFolder("late-nats")]);
  const [redisPort, natsPort] = await freePorts();
  const late = { redisUrl: `redis://127.0.0.1:${redisPort}`, natsUrl: `nats://127.0.0.1:${natsPort}` };
  const service = await launchService({ ...stack.serviceOptions, ...late });
  try {
    await eventually(async () => (await httpStatus(`${service.httpUrl}/healthz`)) === 200, "it lives");
    expect(await httpStatus(`${service.httpUrl}/readyz`)).not.toBe(200);
    await expectUnavailable(service, "/api/v1/timeline/analyze", "POST");
    await expectUnavailable(service, "/api/v1/timeline/analyses/0190c1f4-7b3c-7000-8000-000000000000");
    await expectRefusedForNow(service);
    const nats = await startNats({ dir: folders[1] as string, port: natsPort });
    stack.defer(() => nats.stop());
    expect(await httpStatus(`${service.httpUrl}/readyz`)).not.toBe(200);
    const redis = await startRedis({ dir: folders[0] as string, port: redisPort });
    stack.defer(() => redis.stop());
    await untilReady(service);
    expect(await httpStatus(`${service.httpUrl}/events/timeline/home`)).toBe(401);
    expect(await httpStatus(`${service.httpUrl}/nowhere`)).toBe(404);
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
