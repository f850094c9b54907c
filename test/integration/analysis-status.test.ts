import { expect, test } from "@jest/globals";
import type { StoredMsg } from "nats";
import { v7 } from "uuid";
import { createRequests } from "../../src/analysis/requests.nats.js";
import { createAnalysisStore } from "../../src/analysis/store.sql.js";
import type { AnalysisRequest } from "../../src/contracts/analysis.js";
import { ANALYSIS_REQUESTED, CONSUMER, STREAM } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { maxDeliveriesHandler } from "../../src/roles/consumers.js";
import { call, post, sharedAnalysisBench } from "../support/analysis-http.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";

const bench = sharedAnalysisBench();
const AT = "2026-01-02T03:04:05.000Z";

/** Lets NATS give up the oldest request, and its advisory be handled. */
async function giveUp(): Promise<void> {
  const { connection, manager, publish } = bench.nats;
  await manager.consumers.update(STREAM.timeline, CONSUMER.analysis, { max_deliver: 2 });
  const source = await connection.jetstream().consumers.get(STREAM.timeline, CONSUMER.analysis);
  for (let time = 0; time < 3; time++) (await source.next({ expires: 1_000 }))?.nak();
  const last_by_subj = `$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${STREAM.timeline}.${CONSUMER.analysis}`;
  const advisory = () => manager.streams.getMessage(STREAM.advisories, { last_by_subj }).catch(() => undefined);
  await eventually(async () => (await advisory()) !== undefined, "the advisory is captured");
  const { data: body, time } = (await advisory()) as StoredMsg;
  const delivery = deliveryOf({ stream: STREAM.advisories, body, time: time.getTime() });
  await maxDeliveriesHandler({ nats: connection, storeDeadLetter: publish })(delivery, contextWith());
}

// Invariant 12.
test("an analysis that NATS gave up is failed, and completed once its dead letter is redriven", async () => {
  const { body } = await post(bench.url, "ada");
  const status = async () => {
    const one = await call(bench.url + body.status_url, { user: "ada" });
    const list = await call(`${bench.url}/api/v1/timeline/analyses`, { user: "ada" });
    expect(list.body.analyses).toEqual([one.body]);
    return one.body;
  };
  expect((await status()).status).toBe("queued");
  await giveUp();
  expect(await status()).toMatchObject({ status: "failed", error: "the analysis was given up" });
  const letter = await bench.nats.manager.streams.getMessage(STREAM.dlq, { last_by_subj: "dlq.>" });
  const request = letter.json<AnalysisRequest>();
  expect([letter.subject, request.analysis_id]).toEqual(["dlq.exhausted.analysis_requested", body.analysis_id]);
  const { connection, publish } = bench.nats;
  const { seq } = await publish({ subject: ANALYSIS_REQUESTED, body: letter.data, id: "redriven" });
  expect((await status()).status).toBe("failed");
  await createRequests(createBucket(connection, publish, "ANALYSES")).start(
    { ...request, request_seq: seq },
    Date.now(),
  );
  expect((await status()).status).toBe("processing");
  await insertRow(body.analysis_id, "ada");
  expect((await status()).status).toBe("completed");
});

async function insertRow(analysis_id: string, user_id: string): Promise<void> {
  const about = { did: "bob", type: "flow", tier: "DRIFT" } as const;
  const times = { requested_at: AT, started_at: AT, completed_at: AT };
  const row = { analysis_id, user_id, ...about, ...times, cached: false, request_seq: 1 };
  await createAnalysisStore(bench.db).insert({ ...row, results: { version: "1", posts: 0, flow: {} } });
}

// Invariant 12.
test("without NATS a completed analysis is answered from its row, and nothing is said of the others", async () => {
  const [held, unknown] = [v7(), v7()];
  await insertRow(held, "ben");
  const away = async () => Promise.reject(new AppError("unavailable", "NATS: away"));
  for (const handles of [{ connected: () => false }, { nats: { ...bench.nats.connection, jetstreamManager: away } }]) {
    const url = await bench.another(handles);
    const look = (id: string, user: string) => call(`${url}/api/v1/timeline/analyses/${id}`, { user });
    expect(await look(held, "ben")).toMatchObject({
      status: 200,
      body: { status: "completed", results: { posts: 0 } },
    });
    expect((await look(unknown, "ben")).status).toBe(503);
    expect((await look(held, "eve")).status).toBe(503);
  }
});

test("without the database queued analyses are answered, and nothing is said of those that were begun", async () => {
  const url = await bench.another({ db: undefined });
  const { body } = await post(url, "cleo");
  expect((await call(url + body.status_url, { user: "cleo" })).body.status).toBe("queued");
  expect((await call(`${url}/api/v1/timeline/analyses/${v7()}`, { user: "cleo" })).status).toBe(503);
});

test("a page of an allowed origin may ask, with the key, and read the headers; another one may not", async () => {
  const ask = (path: string, how: RequestInit) => fetch(bench.url + path, how);
  const origin = "https://app.example";
  for (const path of ["/api/v1/timeline/analyze", "/api/v1/timeline/analyses", "/api/v1/xp", "/openapi.json"]) {
    const preflight = await ask(path, { method: "OPTIONS", headers: { origin } });
    expect([preflight.status, preflight.headers.get("access-control-allow-origin")]).toEqual([204, origin]);
    expect(preflight.headers.get("access-control-allow-methods")).toContain("POST");
    expect(preflight.headers.get("access-control-allow-headers")).toMatch(
      /authorization.*content-type.*idempotency-key/,
    );
    const other = await ask(path, { method: "OPTIONS", headers: { origin: "https://evil.example" } });
    expect([other.status, other.headers.get("access-control-allow-origin")]).toEqual([405, null]);
    const refused = await ask(path, { headers: { origin } });
    expect(refused.headers.get("access-control-allow-origin")).toBe(origin);
    expect(refused.headers.get("access-control-allow-credentials")).toBe("true");
    expect(refused.headers.get("vary")).toContain("Origin");
  }
  const accepted = await post(bench.url, "dan", { headers: { origin } });
  expect([accepted.status, accepted.headers.get("access-control-allow-origin")]).toEqual([202, origin]);
  expect(accepted.headers.get("access-control-expose-headers")).toContain("Location");
  const plain = await post(bench.url, "dan");
  expect([plain.headers.get("access-control-allow-origin"), plain.headers.get("vary")]).toEqual([null, "Origin"]);
});
