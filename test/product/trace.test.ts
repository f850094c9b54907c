import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { openReader } from "../support/reader.js";
import { openEvents } from "../support/sse.js";
import { type Stack, startStack } from "../support/stack.js";

type Span = {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly attributes?: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
};
type Export = { readonly resourceSpans: { readonly scopeSpans: { readonly spans: Span[] }[] }[] };

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT = `00-${TRACE}-00f067aa0ba902b7-01`;

const spans: Span[] = [];
let collector: Server;
let stack: Stack;

/** Stands for an OpenTelemetry collector that takes JSON over HTTP. */
async function startCollector(): Promise<Server> {
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      const exported = JSON.parse(Buffer.concat(parts).toString()) as Export;
      for (const resource of exported.resourceSpans)
        for (const scope of resource.scopeSpans) spans.push(...scope.spans);
      response.writeHead(200, { "content-type": "application/json" }).end("{}");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

beforeAll(async () => {
  collector = await startCollector();
  const endpoint = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  stack = await startStack({
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_BSP_SCHEDULE_DELAY: "100",
    },
  });
});

afterAll(async () => {
  await stack?.stop();
  collector?.close();
});

test("one trace leads from the producer over Pub/Sub, planning, the write and the notification to the stream", async () => {
  stack.world.follow("ada", "grace");
  const stream = await openEvents(stack.service.httpUrl, "ada");
  const drop = { drop_id: "traced", user_id: "grace", created_at: Date.now() };
  stack.world.post(drop);
  await stack.redis.publish(
    "drop_created",
    JSON.stringify({ ...drop, visibility: "public", traceparent: TRACEPARENT }),
  );
  await stream.waitFor("new_drop");
  stream.close();
  const names = (): string[] => spans.filter(({ traceId }) => traceId === TRACE).map(({ name }) => name);
  const wanted = [
    "receive drop_created",
    "process drops.created",
    "GetFollowersList",
    "redis add-entries",
    "sse write",
  ];
  await eventually(
    () => wanted.every((name) => names().includes(name)) || names().join(", "),
    "every step is in the trace",
  );
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const chain = (name: string): string[] => {
    const found: string[] = [];
    for (
      let span = spans.find((one) => one.traceId === TRACE && one.name === name);
      span;
      span = byId.get(span.parentSpanId ?? "")
    )
      found.push(span.name);
    return found;
  };
  expect(chain("redis add-entries")).toEqual(["redis add-entries", "process drops.created", "receive drop_created"]);
  expect(chain("sse write")).toEqual(["sse write", "process drops.created", "receive drop_created"]);
});

test("a read of a cold home shows its round trips to Redis, and the rebuild with what it took, without ids", async () => {
  stack.world.follow("cold-reader", "grace");
  const reads = openReader(stack.service.grpcAddress);
  try {
    expect((await reads.home("cold-reader")).degraded).toBe(false);
  } finally {
    reads.close();
  }
  const rebuild = (): Span | undefined => spans.find(({ name }) => name === "rebuild");
  await eventually(
    () => rebuild() !== undefined && spans.some(({ name }) => name === "GetHomeTimeline"),
    "the spans come",
  );
  const root = spans.find(({ name }) => name === "GetHomeTimeline") as Span;
  const { spanId, parentSpanId, attributes } = rebuild() as Span;
  expect(parentSpanId).toBe(root.spanId);
  const of = (parent: string): string[] =>
    spans.filter(({ parentSpanId: id }) => id === parent).map(({ name }) => name);
  expect(of(root.spanId).filter((name) => name === "redis read-page")).toHaveLength(2);
  expect(of(spanId)).toEqual(
    expect.arrayContaining(["redis begin-rebuild", "GetFollowingList", "GetDropsByUserID", "redis finish-rebuild"]),
  );
  const values = Object.fromEntries((attributes ?? []).map(({ key, value }) => [key, Object.values(value)[0]]));
  expect(values).toMatchObject({
    ...{ "timeline.kind": "home", "timeline.authors": 2 },
    ...{ "timeline.author_reads": expect.any(Number), "timeline.entries": expect.any(Number) },
  });
  expect(JSON.stringify(spans)).not.toContain("cold-reader");
});
