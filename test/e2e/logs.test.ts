import { credentials, Metadata } from "@grpc/grpc-js";
import { expect } from "@jest/globals";
import { TimelineServiceClient } from "../../src/gen/avion/timeline.js";
import { eventually } from "../support/eventually.js";
import type { ServiceProcess } from "../support/service.js";
import { openEvents } from "../support/sse.js";
import { type Stack, sharedStack, testWithStack } from "../support/stack.js";
import { created } from "../support/timeline-events.js";
import { inKey } from "../support/timeline-keys.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT = `00-${TRACE}-00f067aa0ba902b7-01`;
const TRACE_ID = /^[\da-f]{32}$/;
/** An id that must stand encoded wherever it is written. */
const ODD = "grace hopper / ✗";

type Line = Readonly<Record<string, unknown>>;

/** Lines of a process's log with this text. */
function logged(service: ServiceProcess, message: string): Line[] {
  const lines = service
    .output()
    .split("\n")
    .filter((line) => line !== "");
  return lines.map((line) => JSON.parse(line) as Line).filter(({ msg }) => msg === message);
}

/** Waits for lines with this text. */
async function waitForLines(service: ServiceProcess, message: string, count = 1): Promise<Line[]> {
  await eventually(() => logged(service, message).length >= count, `${count} lines: ${message}`);
  return logged(service, message);
}

/** Reads a home; resolves to the status by its number. */
function read({ service }: Stack, user_id: string, limit = 20): Promise<number> {
  const client = new TimelineServiceClient(service.grpcAddress, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set("traceparent", TRACEPARENT);
  const request = { user_id, limit, since_id: "", max_id: "", min_id: "" };
  return new Promise((resolve) => {
    client.getHomeTimeline(request, metadata, (error) => {
      client.close();
      resolve(error?.code ?? 0);
    });
  });
}

const onStack = sharedStack();

onStack("each served call is a line with method, status, duration, peer and trace", async (stack) => {
  expect(await read(stack, "ada")).toBe(0);
  expect(await read(stack, "ada", 1_000)).toBe(3);
  const lines = await waitForLines(stack.service, "a call is served", 2);
  const common = {
    ...{ level: "info", method: "GetHomeTimeline", trace_id: TRACE, span_id: expect.stringMatching(/^[\da-f]{16}$/) },
    ...{ duration_ms: expect.any(Number), peer: expect.stringContaining("127.0.0.1") },
  };
  expect(lines).toEqual([
    expect.objectContaining({ ...common, code: "OK" }),
    expect.objectContaining({ ...common, code: "INVALID_ARGUMENT" }),
  ]);
});

const QUIET = { env: { TIMELINE_ACCESS_LOG_SHARE: "0" } };
testWithStack("with a share of 0 served calls and streams are no lines, and failed calls are", QUIET, async (stack) => {
  const { service } = stack;
  expect(await read(stack, "ada")).toBe(0);
  (await openEvents(service.httpUrl, "ada")).close();
  expect(await read(stack, "ada", 1_000)).toBe(3);
  const lines = await waitForLines(service, "a call is served");
  expect(lines).toEqual([expect.objectContaining({ code: "INVALID_ARGUMENT" })]);
  expect(logged(service, "an event stream is open")).toEqual([]);
});

onStack("a refused stream is a line with its status", async ({ service }) => {
  expect((await fetch(`${service.httpUrl}/events/timeline/home`)).status).toBe(401);
  expect(await waitForLines(service, "an event stream was refused")).toMatchObject([{ level: "info", status: 401 }]);
});

// It ends the service, and so comes last.
onStack(
  "a stream is a line when it opens, and one with its reason when it closes; events are no lines at info",
  async (stack) => {
    const { service, id } = stack;
    stack.world.follow(ODD, id("alice"));
    const stream = await openEvents(service.httpUrl, ODD);
    const [open] = await waitForLines(service, "an event stream is open");
    expect(open).toMatchObject({
      level: "info",
      user: inKey(ODD),
      resumed: false,
      trace_id: expect.stringMatching(TRACE_ID),
    });
    const drop = { drop_id: id("told"), user_id: id("alice"), visibility: "public" as const, created_at: Date.now() };
    stack.world.post(drop);
    await stack.publish(created(drop));
    await stack.streams.settledWith(1);
    await stream.waitFor("new_drop");
    stream.close();
    const [closed] = await waitForLines(service, "an event stream is closed");
    const { user, connection, trace_id } = open as Line;
    expect(closed).toMatchObject({ level: "info", user, connection, trace_id, reason: "client", events: 1 });
    await openEvents(service.httpUrl, "second");
    await service.stop();
    expect(logged(service, "an event stream is closed").at(-1)).toMatchObject({ user: "second", reason: "drain" });
    expect(logged(service, "an event is handled")).toEqual([]);
  },
);

// Invariant 9.
testWithStack(
  "at debug each handled event is a line of its trace, with outcome, attempt and duration, and no id is written raw",
  { env: { TIMELINE_LOG_LEVEL: "debug" } },
  async (stack) => {
    const { redis, service, world, streams } = stack;
    world.follow("ada", ODD);
    const drop = { drop_id: `drop of ${ODD}`, user_id: ODD, visibility: "public", created_at: Date.now() };
    world.post({ drop_id: drop.drop_id, user_id: ODD, created_at: drop.created_at });
    await redis.publish("drop_created", JSON.stringify({ ...drop, traceparent: TRACEPARENT }));
    await streams.settledWith(1);
    const handled = (): Line[] =>
      logged(service, "an event is handled").filter(({ subject }) => subject === "drops.created");
    await eventually(() => handled().length > 0, "the line is there");
    expect(handled()).toMatchObject([
      {
        ...{ level: "debug", stream: "DROPS", consumer: "planner", outcome: "acked", attempt: 1, trace_id: TRACE },
        duration_ms: expect.any(Number),
      },
    ]);
    expect(await read(stack, ODD)).toBe(0);
    (await openEvents(service.httpUrl, ODD)).close();
    await waitForLines(service, "an event stream is closed");
    expect(service.output()).not.toContain(ODD);
  },
);
