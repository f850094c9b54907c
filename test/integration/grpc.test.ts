import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import { context, propagation, type Span, trace } from "@opentelemetry/api";
import { node } from "@opentelemetry/sdk-node";
import { InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import {
  type GetTimelineRequest,
  type GetTimelineResponse,
  TimelineServiceClient,
  TimelineServiceService,
} from "../../src/gen/avion/timeline.js";
import { HealthCheckResponse_ServingStatus, HealthClient } from "../../src/gen/grpc/health/v1/health.js";
import { AppError, type ErrorCode } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { type GrpcServer, serveGrpc } from "../../src/platform/grpc/serve.js";
import { type CallContext, lazilyTraced, unary } from "../../src/platform/grpc/unary.js";
import { connectUpstreams } from "../../src/upstreams/upstreams.grpc.js";
import { becomes, eventually } from "../support/eventually.js";
import { type Upstreams as Served, startUpstreams } from "../support/upstreams.js";
import { World } from "../support/world.js";

type Method = (request: GetTimelineRequest, context: CallContext) => Promise<GetTimelineResponse>;
const CURSORS = { next_max_id: "", prev_min_id: "" };
const EMPTY: GetTimelineResponse = { drop_ids: [], has_more: false, ...CURSORS, degraded: false, items: [] };

let method: Method = async () => EMPTY;
const logged: object[] = [];
let server: GrpcServer;
let client: TimelineServiceClient;
let served: Served;
let upstreams: ReturnType<typeof connectUpstreams>;
const spans = new InMemorySpanExporter();

beforeAll(async () => {
  new node.NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }).register();
  const note = (fields: object): void => void logged.push(fields);
  const log = { ...silent, error: note, warn: note };
  const call = unary<GetTimelineRequest, GetTimelineResponse>("Get", log, (request, how) => method(request, how));
  const implementation = { getHomeTimeline: call, getLocalTimeline: call, getGlobalTimeline: call };
  server = await serveGrpc(
    "127.0.0.1:0",
    [{ name: "avion.TimelineService", definition: TimelineServiceService, implementation }],
    {},
  );
  client = new TimelineServiceClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
  const world = new World();
  world.follow("bob", "ada");
  served = await startUpstreams(world);
  upstreams = connectUpstreams({ userServiceAddr: served.usersAddress, postServiceAddr: served.postsAddress, tls: {} });
});
afterAll(async () => {
  client.close();
  upstreams.close();
  await Promise.all([server.close(1_000), served.stop()]);
  trace.disable();
  propagation.disable();
  context.disable();
});
afterEach(() => {
  method = async () => EMPTY;
  spans.reset();
});

function call(metadata = new Metadata(), deadlineMs = 5_000): Promise<GetTimelineResponse> {
  const request = { user_id: "ada", limit: 0, since_id: "", max_id: "", min_id: "" };
  return new Promise((resolve, reject) => {
    client.getHomeTimeline(request, metadata, { deadline: Date.now() + deadlineMs }, (error, answer) =>
      error ? reject(error) : resolve(answer),
    );
  });
}
const failure = (promise: Promise<unknown>): Promise<ServiceError> =>
  promise.then(
    () => Promise.reject(new Error("it answered")),
    (error: ServiceError) => error,
  );

test.each<[ErrorCode, status]>([
  ["invalid", status.INVALID_ARGUMENT],
  ["unavailable", status.UNAVAILABLE],
  ["exhausted", status.RESOURCE_EXHAUSTED],
  ["deadline", status.DEADLINE_EXCEEDED],
  ["failed", status.INTERNAL],
])("`%s` is told as status %i, with its message", async (code, expected) => {
  method = () => Promise.reject(new AppError(code, "limit: is wrong", { cause: new Error("secret") }));
  const error = await failure(call());
  expect([error.code, error.details]).toEqual([expected, "limit: is wrong"]);
});

test("texts of other servers are logged, and not sent to the caller", async () => {
  const nowhere = connectUpstreams({ userServiceAddr: "127.0.0.1:1", postServiceAddr: "127.0.0.1:1", tls: {} });
  method = async () => nowhere.followers({ user: "ada", size: 1, token: "" }).then(() => EMPTY);
  const error = await failure(call());
  expect([error.code, error.details]).toEqual([status.UNAVAILABLE, "GetFollowersList: UNAVAILABLE"]);
  expect(logged).toContainEqual(
    expect.objectContaining({ method: "Get", error: expect.stringContaining("127.0.0.1:1") }),
  );
  nowhere.close();
});

test("calls that fail for the same reason are one line in the log", async () => {
  const about = { publicMessage: "a server is away" };
  method = () => Promise.reject(new AppError("deadline", "10.1.2.3 says: timed out", about));
  const before = logged.length;
  for (let n = 0; n < 3; n++) expect((await failure(call())).details).toBe("a server is away");
  expect(logged.slice(before)).toEqual([{ method: "Get", error: "10.1.2.3 says: timed out" }]);
});

test("an unexpected error is answered without detail, and logged in full", async () => {
  method = () => Promise.reject(new TypeError("password hunter2"));
  const error = await failure(call());
  expect([error.code, error.details]).toEqual([status.INTERNAL, "internal error"]);
  expect(logged.at(-1)).toMatchObject({
    method: "Get",
    error: "password hunter2",
    stack: expect.stringContaining("TypeError"),
  });
});

test("the caller's deadline is handed on; who sets none gets ten seconds", async () => {
  let seen = 0;
  method = async (_, { deadline }) => {
    seen = deadline - Date.now();
    return EMPTY;
  };
  await call(new Metadata(), 40_000);
  expect(seen).toBeGreaterThan(30_000);
  expect(seen).toBeLessThanOrEqual(40_001);
  await call(new Metadata(), 3_600_000);
  expect(seen).toBeGreaterThan(3_500_000);
  await new Promise((resolve, reject) => {
    client.getLocalTimeline({ user_id: "", limit: 0, since_id: "", max_id: "", min_id: "" }, (error, answer) =>
      error ? reject(error) : resolve(answer),
    );
  });
  expect(seen).toBeGreaterThan(9_000);
  expect(seen).toBeLessThanOrEqual(10_000);
});

test("the caller's trace goes on through the method into the calls it makes", async () => {
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  let inside: Span | undefined;
  method = async () => {
    inside = trace.getActiveSpan();
    await upstreams.following({ user: "bob", size: 10, token: "" });
    return EMPTY;
  };
  const metadata = new Metadata();
  metadata.set("traceparent", `00-${traceId}-00f067aa0ba902b7-01`);
  await call(metadata);
  expect(inside?.spanContext().traceId).toBe(traceId);
  const byName = new Map(spans.getFinishedSpans().map((span) => [span.name, span]));
  expect(byName.get("Get")?.parentSpanContext?.spanId).toBe("00f067aa0ba902b7");
  expect(byName.get("GetFollowingList")?.parentSpanContext?.spanId).toBe(inside?.spanContext().spanId);
});

test("the span of a lazily traced call begins where the work asks for it, or with the call if it is sampled", async () => {
  const seen: (string | undefined)[] = [];
  const activeId = (): string | undefined => trace.getActiveSpan()?.spanContext().traceId;
  const of = { name: "Lazy", exportsTraces: false, log: silent };
  const get = lazilyTraced<GetTimelineRequest, GetTimelineResponse>(of, async ({ user_id }, { traced }) => {
    if (user_id === "untraced") return EMPTY;
    seen.push(activeId(), await traced(async () => activeId()));
    return EMPTY;
  });
  const lazy = await serveGrpc(
    "127.0.0.1:0",
    [{ name: "avion.TimelineService", definition: TimelineServiceService, implementation: { getHomeTimeline: get } }],
    {},
  );
  const caller = new TimelineServiceClient(`127.0.0.1:${lazy.port}`, credentials.createInsecure());
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const callWith = (flags: string | undefined, user_id = "ada"): Promise<unknown> => {
    const request = { user_id, limit: 0, since_id: "", max_id: "", min_id: "" };
    const metadata = new Metadata();
    if (flags) metadata.set("traceparent", `00-${traceId}-00f067aa0ba902b7-${flags}`);
    return new Promise((resolve, reject) =>
      caller.getHomeTimeline(request, metadata, (error, answer) => (error ? reject(error) : resolve(answer))),
    );
  };
  try {
    await callWith("00");
    expect(seen.splice(0)).toEqual([undefined, traceId]);
    await callWith("01");
    expect(seen.splice(0)).toEqual([traceId, traceId]);
    spans.reset();
    await callWith(undefined, "untraced");
    expect(spans.getFinishedSpans()).toEqual([]);
    await callWith(undefined);
    expect(seen).toEqual([undefined, expect.stringMatching(/^[0-9a-f]{32}$/)]);
    expect(spans.getFinishedSpans()).toHaveLength(1);
  } finally {
    caller.close();
    await lazy.close(1_000);
  }
});

const health = (service: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const plain = new Client(`127.0.0.1:${server.port}`, credentials.createInsecure());
    const name = Buffer.from(service);
    const done = (error: ServiceError | null, answer?: Buffer): void => {
      plain.close();
      if (error) reject(error);
      else resolve(answer?.[1] ?? 0);
    };
    plain.makeUnaryRequest(
      "/grpc.health.v1.Health/Check",
      () => Buffer.concat([Buffer.from(name.length ? [0x0a, name.length] : []), name]),
      (bytes) => bytes,
      {},
      done,
    );
  });

test("health says serving and not serving, of the server and of the service, and knows no other", async () => {
  const [SERVING, NOT_SERVING] = [1, 2];
  server.setServing(true);
  expect([await health(""), await health("avion.TimelineService")]).toEqual([SERVING, SERVING]);
  server.setServing(false);
  expect([await health(""), await health("avion.TimelineService")]).toEqual([NOT_SERVING, NOT_SERVING]);
  expect((await failure(health("avion.Other"))).code).toBe(status.NOT_FOUND);
});

test("a watcher of health is told each change; one of an unknown service is told so, and nothing more", async () => {
  server.setServing(false);
  const watcher = new HealthClient(`127.0.0.1:${server.port}`, credentials.createInsecure());
  const watched = (service: string): HealthCheckResponse_ServingStatus[] => {
    const told: HealthCheckResponse_ServingStatus[] = [];
    const stream = watcher.watch({ service });
    stream.on("data", ({ status: health }) => told.push(health));
    stream.on("error", () => undefined);
    return told;
  };
  const [ofServer, ofOther] = [watched(""), watched("avion.Other")];
  const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = HealthCheckResponse_ServingStatus;
  await becomes(async () => expect([ofServer, ofOther]).toEqual([[NOT_SERVING], [SERVICE_UNKNOWN]]));
  server.setServing(true);
  await becomes(async () => expect(ofServer).toEqual([NOT_SERVING, SERVING]));
  expect(ofOther).toEqual([SERVICE_UNKNOWN]);
  watcher.close();
});

const buf = (...args: string[]) =>
  promisify(execFile)(
    join(process.cwd(), "node_modules/.bin/buf"),
    ["curl", "--http2-prior-knowledge", "--protocol", "grpc", ...args],
    { timeout: 20_000 },
  );

test.each(["grpc-v1", "grpc-v1alpha"])(
  "reflection %s lists the services and is enough to call one",
  async (protocol) => {
    method = async ({ user_id }) => ({ ...EMPTY, drop_ids: [`of ${user_id}`] });
    const address = `http://127.0.0.1:${server.port}`;
    const listed = await buf("--reflect-protocol", protocol, "--list-services", address);
    expect(listed.stdout.split("\n")).toEqual(expect.arrayContaining(["avion.TimelineService"]));
    const data = JSON.stringify({ user_id: "ada" });
    const called = await buf(
      "--reflect-protocol",
      protocol,
      "--data",
      data,
      `${address}/avion.TimelineService/GetHomeTimeline`,
    );
    expect(JSON.parse(called.stdout)).toEqual({ dropIds: ["of ada"] });
  },
);

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: unknown) => (error instanceof AppError ? error.code : `not ours: ${String(error)}`),
  );

test.each<[status, string]>([
  [status.UNAVAILABLE, "unavailable"],
  [status.UNIMPLEMENTED, "failed"],
  [status.INTERNAL, "failed"],
  [status.NOT_FOUND, "failed"],
  [status.INVALID_ARGUMENT, "failed"],
  [status.DEADLINE_EXCEEDED, "failed"],
])("an upstream that answers %i counts as %s", async (code, expected) => {
  const heal = served.inject({ method: "GetFollowersList", code });
  expect(await codeOf(upstreams.followers({ user: "ada", size: 1, token: "" }))).toBe(expected);
  heal();
  // A failure that took long on a busy machine is remembered for as long.
  await becomes(async () =>
    expect(await upstreams.followers({ user: "ada", size: 1, token: "" })).toEqual({
      ids: ["bob"],
      next: "",
      total: 1,
    }),
  );
});

test("a method that the upstream lacks is an answer, and no outage", async () => {
  const heal = served.inject({ method: "GetFollowersList", code: status.UNIMPLEMENTED });
  try {
    for (const user of ["ada", "bob", "cleo", "dan"])
      expect(await codeOf(upstreams.followers({ user, size: 1, token: "" }))).toBe("failed");
  } finally {
    heal();
  }
});

test("an upstream that is slow is given up at the caller's deadline; one that nobody serves is unavailable", async () => {
  const heal = served.inject({ method: "GetFollowingList", delayMs: 10_000 });
  const deadline = Date.now() + 200;
  expect(await codeOf(upstreams.following({ user: "bob", size: 1, token: "", deadline }))).toBe("failed");
  await eventually(() => served.abandoned() === 1, "the call was given up while it was held back");
  heal();
  const nowhere = connectUpstreams({ userServiceAddr: "127.0.0.1:1", postServiceAddr: "127.0.0.1:1", tls: {} });
  expect(await codeOf(nowhere.followers({ user: "ada", size: 1, token: "" }))).toBe("unavailable");
  nowhere.close();
});

test("close lets calls under way end and takes no new ones", async () => {
  let end: (response: GetTimelineResponse) => void = () => undefined;
  const begun = new Promise<void>((started) => {
    method = () =>
      new Promise((resolve) => {
        end = resolve;
        started();
      });
  });
  const underWay = call();
  await begun;
  const closing = server.close(5_000);
  end({ ...EMPTY, drop_ids: ["in time"] });
  expect((await underWay).drop_ids).toEqual(["in time"]);
  await closing;
  expect((await failure(call())).code).toBe(status.UNAVAILABLE);
});
