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
  readonly attributes?: Attributes;
};
type Attributes = readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
type Export = {
  readonly resourceSpans?: {
    readonly resource: { readonly attributes: Attributes };
    readonly scopeSpans: { readonly spans: Span[] }[];
  }[];
  readonly resourceMetrics?: {
    readonly scopeMetrics: { readonly metrics: { readonly name: string }[] }[];
  }[];
  readonly resourceLogs?: {
    readonly resource: { readonly attributes: Attributes };
    readonly scopeLogs: { readonly logRecords: LogRecord[] }[];
  }[];
};
type LogRecord = {
  readonly body: { readonly stringValue: string };
  readonly severityNumber: number;
  readonly traceId?: string;
  readonly spanId?: string;
  readonly attributes: Attributes;
};

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const TRACEPARENT = `00-${TRACE}-00f067aa0ba902b7-01`;

const spans: Span[] = [];
/** Of the resources of all spans. */
const resources: Readonly<Record<string, unknown>>[] = [];
const metrics = new Set<string>();
const records: LogRecord[] = [];
let collector: Server;
let stack: Stack;

const valuesOf = (attributes: Attributes): Readonly<Record<string, unknown>> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));

/** Stands for an OpenTelemetry collector that takes JSON over HTTP. */
async function startCollector(): Promise<Server> {
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      const exported = JSON.parse(Buffer.concat(parts).toString()) as Export;
      for (const { resource, scopeSpans } of exported.resourceSpans ?? []) {
        resources.push(valuesOf(resource.attributes));
        for (const scope of scopeSpans) spans.push(...scope.spans);
      }
      for (const { scopeMetrics } of exported.resourceMetrics ?? [])
        for (const scope of scopeMetrics) for (const { name } of scope.metrics) metrics.add(name);
      for (const { resource, scopeLogs } of exported.resourceLogs ?? []) {
        resources.push(valuesOf(resource.attributes));
        for (const scope of scopeLogs) records.push(...scope.logRecords);
      }
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
      OTEL_LOGS_EXPORTER: "otlp",
      OTEL_BLRP_SCHEDULE_DELAY: "100",
      OTEL_METRICS_EXPORTER: "otlp",
      OTEL_METRIC_EXPORT_INTERVAL: "500",
      OTEL_METRIC_EXPORT_TIMEOUT: "400",
      OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=staging,team=a%2Cb",
      OTEL_SERVICE_NAME: "",
      OTEL_EXPORTER_PROMETHEUS_PORT: "9464",
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
  expect(valuesOf(attributes ?? [])).toMatchObject({
    ...{ "timeline.kind": "home", "timeline.authors": 2 },
    ...{ "timeline.author_reads": expect.any(Number), "timeline.entries": expect.any(Number) },
  });
  expect(JSON.stringify(spans)).not.toContain("cold-reader");
});

test("the variables set the resource of every span and of target_info, and metrics go by OTLP beside /metrics", async () => {
  await eventually(() => metrics.has("timeline_handle_seconds"), "metrics come to the collector");
  await eventually(() => resources.length > 0, "spans come");
  const wanted = { "service.name": "avion-timeline", "deployment.environment.name": "staging", team: "a,b" };
  for (const resource of resources) expect(resource).toMatchObject(wanted);
  const scraped = await (await fetch(`${stack.service.httpUrl}/metrics`)).text();
  const [info = ""] = /^target_info\{.*\} 1$/m.exec(scraped) ?? [];
  for (const label of ['service_name="avion-timeline"', 'team="a,b"', 'deployment_environment_name="staging"'])
    expect(info).toContain(label);
  expect(scraped).toContain("timeline_handle_seconds_bucket");
  expect(stack.service.output()).toMatch(/OTEL_EXPORTER_PROMETHEUS_PORT.*have no effect/);
});

test("a line of the log goes by OTLP with its level, fields and trace, beside the standard output", async () => {
  const reads = openReader(stack.service.grpcAddress);
  try {
    await reads.home("cold-reader");
  } finally {
    reads.close();
  }
  const served = (): LogRecord | undefined =>
    records.find(({ body, traceId }) => body.stringValue === "a call is served" && traceId !== undefined);
  await eventually(() => served() !== undefined, "the record comes");
  const { severityNumber, traceId, spanId, attributes } = served() as LogRecord;
  expect(severityNumber).toBe(9);
  expect(valuesOf(attributes)).toEqual({
    ...{ method: expect.any(String), code: "OK", duration_ms: expect.any(Number), peer: expect.any(String) },
  });
  const [line = ""] = stack.service
    .output()
    .split("\n")
    .filter((one) => one.includes(spanId as string) && one.includes("a call is served"));
  expect(JSON.parse(line)).toMatchObject({ trace_id: traceId, service: "avion-timeline" });
});

test("with OTEL_SDK_DISABLED nothing is exported, and /metrics stays as it is", async () => {
  const service = await stack.start({ env: { OTEL_SDK_DISABLED: "true", OTEL_SERVICE_NAME: "disabled" } });
  const scraped = async (): Promise<string> => (await fetch(`${service.httpUrl}/metrics`)).text();
  await eventually(async () => /^timeline_sample_up\{.*\} 1$/m.test(await scraped()), "it measures");
  expect(await scraped()).toMatch(/^target_info\{.*service_name="disabled".*\} 1$/m);
  await service.stop();
  expect(resources.filter((resource) => resource["service.name"] === "disabled")).toEqual([]);
});

test("a collector that is away is logged once", async () => {
  let refused = 0;
  const away = createServer((request) => {
    refused++;
    request.socket.destroy();
  });
  await new Promise<void>((resolve) => away.listen(0, "127.0.0.1", resolve));
  const endpoint = `http://127.0.0.1:${(away.address() as AddressInfo).port}`;
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_EXPORTER_OTLP_TIMEOUT: "300" };
  const service = await stack.start({ env });
  const lines = (): number => service.output().split("telemetry could not be exported").length - 1;
  await eventually(() => lines() > 0, "the failure is logged");
  const before = refused;
  await eventually(() => refused > before + 3, "more exports fail");
  expect(lines()).toBe(1);
  await service.stop();
  away.close();
});
