import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { createAnalysisOperations } from "../../src/analysis/operations.nats.js";
import { createRequests } from "../../src/analysis/requests.nats.js";
import { startAnalysisService } from "../../src/analysis/service.nats.js";
import type { AnalysisRequest } from "../../src/contracts/analysis.js";
import { CONSUMER, STREAM } from "../../src/contracts/subjects.js";
import type { UnfinishedAnalysis } from "../../src/contracts/tables.js";
import { silent } from "../../src/kernel/logger.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { type NatsBench, openNats } from "../support/nats.js";

let nats: NatsBench;
let close: () => Promise<void>;
beforeAll(async () => {
  nats = await openNats();
  const { connection, publish } = nats;
  const service = await startAnalysisService({ nats: connection, publish, version: "1.0.0", log: silent });
  close = service.close;
});
afterEach(() => nats.manager.streams.purge(STREAM.timeline));
afterAll(async () => {
  await close();
  await nats.close();
});

const requestOf = (user_id: string, did = "bob"): AnalysisRequest => {
  const requested_at = new Date().toISOString();
  return { analysis_id: v7(), user_id, did, type: "flow", tier: "JET", requested_at };
};
const bytes = (value: unknown) => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
const facts = () => createRequests(createBucket(nats.connection, nats.publish, "ANALYSES"));
const send = (body: unknown, id: string) =>
  nats.publish({ subject: "events.timeline.requested", body: bytes(body), id });
const ask = async (endpoint: string, request: unknown) => {
  const reply = await nats.connection.request(`avion.ops.analysis.${endpoint}`, bytes(request), { timeout: 10_000 });
  return reply.headers?.get("Nats-Service-Error-Code") || JSON.parse(reply.string());
};
/** As a gateway does. */
const queue = async (request: AnalysisRequest): Promise<number> => {
  const { seq } = await send(request, request.analysis_id);
  await facts().record({ ...request, request_seq: seq });
  return seq;
};
const none = { reason: null, error: null };

test("waiting analyses, begun ones and dead letters are listed in this order, with their positions", async () => {
  const [queued, begun, failed, done] = ["ann", "b b", "cy", "dee"].map((user) => requestOf(user));
  const wrong = { analysis_id: null, user_id: null, did: null, type: null, tier: null };
  for (const request of [done, failed]) await facts().record(request as AnalysisRequest);
  const places: number[] = [];
  for (const request of [queued, begun]) places.push(await queue(request as AnalysisRequest));
  places.push((await send("{", "odd")).seq);
  await facts().start(begun as AnalysisRequest, 1_700_000_000_000);
  for (const request of [failed, done]) await facts().start(request as AnalysisRequest, 1_700_000_000_000);
  const failure = { failed_at: "2026-01-01T00:00:00.000Z", error: "INTERNAL", error_code: "source_failed", attempt: 3 };
  await facts().fail(failed as AnalysisRequest, failure);
  const headers = { "Dlq-Failed-At": failure.failed_at, "Dlq-Reason": "exhausted", "Dlq-Error": "INTERNAL" };
  const letter = { subject: "dlq.exhausted.analysis_requested", body: bytes(failed), id: "letter", headers };
  await nats.publish({ ...letter, id: "other", subject: "dlq.exhausted.drop_created" });
  const { seq } = await nats.publish(letter);
  const named = ({ requested_at: _, ...rest }: AnalysisRequest) => rest;
  const expected = [
    { ...named(queued as AnalysisRequest), status: "queued", since: queued?.requested_at, ...none },
    { ...named(begun as AnalysisRequest), status: "processing", since: "2023-11-14T22:13:20.000Z", ...none },
    { ...wrong, status: "queued", since: expect.stringMatching(/Z$/), ...none },
  ].map((one, at) => ({ ...one, stream: "TIMELINE", stream_seq: places[at] }));
  const dead = { status: "failed", since: failure.failed_at, reason: "exhausted", error: "INTERNAL" };
  const all = [...expected, { ...named(failed as AnalysisRequest), ...dead, stream: "DLQ", stream_seq: seq }];
  const found: UnfinishedAnalysis[] = [];
  for await (const one of createAnalysisOperations({ ...nats, nats: nats.connection }).list()) found.push(one);
  expect(found).toEqual(all);
  expect(await ask("list", {})).toEqual(all);
  expect(await ask("list", { limit: 2 })).toEqual(all.slice(0, 2));

  const show = async (request?: AnalysisRequest) => ask("show", { analysis_id: request?.analysis_id });
  expect(await show(begun)).toEqual({
    ...{ ...begun, status: "processing", started_at: "2023-11-14T22:13:20.000Z" },
    ...{ failed_at: null, error_code: null, error: null, stream: "TIMELINE", stream_seq: places[1] },
  });
  expect(await show(queued)).toMatchObject({ status: "queued", started_at: null, stream: "TIMELINE" });
  expect(await show(failed)).toMatchObject({ status: "failed", error_code: "source_failed", stream: "DLQ" });
  expect(await show(done)).toMatchObject({ status: "completed", stream: null, stream_seq: null, error: null });
});

test("without a dead letter an analysis stays failed, until it is redriven and completed", async () => {
  const failure = { failed_at: "2026-01-01T00:00:00.000Z", error: "x", attempt: 1 };
  const [gone, removed, redriven] = ["eli", "fay", "gil"].map((user) => requestOf(user)) as [
    AnalysisRequest,
    AnalysisRequest,
    AnalysisRequest,
  ];
  for (const request of [gone, removed, redriven]) await facts().record(request);
  await facts().fail(gone, { ...failure, error_code: "account_suspended" });
  for (const request of [removed, redriven]) await facts().fail(request, { ...failure, error_code: "source_failed" });
  await facts().overcome(redriven);
  expect(await ask("show", { analysis_id: gone.analysis_id })).toMatchObject({
    ...{ status: "failed", error_code: "account_suspended", stream: null },
  });
  expect(await ask("show", { analysis_id: removed.analysis_id })).toMatchObject({
    ...{ status: "failed", error_code: "source_failed", stream: null },
  });
  expect(await ask("show", { analysis_id: redriven.analysis_id })).toMatchObject({
    ...{ status: "completed", failed_at: null, error: null },
  });
});

// Invariant 12.
test("behind a long backlog a request is shown as queued, in time for its operator", async () => {
  const { connection } = nats;
  const body = bytes(requestOf("hal"));
  for (let number = 0; number < 10_001; number++) connection.publish("events.timeline.requested", body);
  await connection.flush();
  const last = requestOf("ida");
  const seq = await queue(last);
  const reply = await connection.request("avion.ops.analysis.show", bytes({ analysis_id: last.analysis_id }));
  expect(JSON.parse(reply.string())).toMatchObject({ status: "queued", stream: "TIMELINE", stream_seq: seq });
});

// Invariant 12.
test("an analysis that fails while it is being shown is not shown as completed", async () => {
  const { connection, manager, publish } = nats;
  const request = requestOf("jon");
  const seq = await queue(request);
  const failure = { failed_at: "2026-01-01T00:00:00.000Z", error: "x", attempt: 1, error_code: "account_unknown" };
  let asked = 0;
  /** The worker ends it between the facts and its message. */
  const getMessage: typeof manager.streams.getMessage = async (stream, query) => {
    if (stream === STREAM.timeline && asked++ === 0) {
      await facts().fail(request, failure);
      await manager.streams.deleteMessage(STREAM.timeline, seq);
    }
    return manager.streams.getMessage(stream, query);
  };
  const streams = Object.assign(Object.create(manager.streams), { getMessage });
  const jetstreamManager = async () => Object.assign(Object.create(manager), { streams });
  const slow = Object.assign(Object.create(connection), { jetstreamManager });
  const operations = createAnalysisOperations({ nats: slow, publish });
  expect(await operations.show(request.analysis_id)).toMatchObject({ status: "failed", error_code: "account_unknown" });
  expect(asked).toBeGreaterThan(0);
});

test("an analysis that NATS gave up is shown as failed, with its dead letter", async () => {
  const request = requestOf("kay");
  const seq = await queue(request);
  await facts().start({ ...request, request_seq: seq }, Date.now());
  await nats.manager.streams.deleteMessage(STREAM.timeline, seq);
  const letter = { subject: "dlq.exhausted.analysis_requested", body: bytes(request), id: "given up" };
  const place = await nats.publish(letter);
  expect(await ask("show", { analysis_id: request.analysis_id })).toMatchObject({
    ...{ status: "failed", stream: "DLQ", stream_seq: place.seq, failed_at: null, error: null },
  });
});

test("an analysis is shown as processing until its message is acked, and then as completed", async () => {
  const request = requestOf("lea");
  const seq = await queue(request);
  await facts().start({ ...request, request_seq: seq }, Date.now());
  const show = () => ask("show", { analysis_id: request.analysis_id });
  expect(await show()).toMatchObject({ status: "processing", stream_seq: seq });
  const source = await nats.connection.jetstream().consumers.get(STREAM.timeline, CONSUMER.analysis);
  await (await source.next())?.ackAck();
  expect(await show()).toMatchObject({ status: "completed", stream: null });
});

test("a request that is wrong, or about an analysis that nobody knows, is refused", async () => {
  expect(await ask("show", { analysis_id: v7() })).toBe("404");
  expect(await ask("show", { analysis_id: "*" })).toBe("404");
  expect(await ask("show", {})).toBe("400");
  expect(await ask("list", { limit: 0 })).toBe("400");
  expect(await ask("list", "{")).toBe("400");
});
