import { beforeAll, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { createRequests, type Requests } from "../../src/analysis/requests.nats.js";
import { createAnalysisStore } from "../../src/analysis/store.sql.js";
import type { AnalysisRequest } from "../../src/contracts/analysis.js";
import { AppError } from "../../src/kernel/errors.js";
import type { Db } from "../../src/platform/db/db.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { createRewardStore } from "../../src/rewards/index.js";
import { call, post, sharedAnalysisBench } from "../support/analysis-http.js";
import { eventually } from "../support/eventually.js";

const bench = sharedAnalysisBench({ rewards: createRewardStore });
let requests: Requests;
beforeAll(() => {
  requests = createRequests(createBucket(bench.nats.connection, bench.nats.publish, "ANALYSES"));
});

const LIST = "/api/v1/timeline/analyses";
const RESULTS = { version: "1", posts: 2, flow: { score: 1 } };

async function requested(user_id: string): Promise<AnalysisRequest> {
  const requested_at = new Date().toISOString();
  const request = { analysis_id: v7(), user_id, did: "bob", type: "flow", tier: "DRIFT", requested_at } as const;
  await requests.record({ ...request, estimated_completion: requested_at });
  return request;
}

async function completed(request: AnalysisRequest): Promise<void> {
  const [started_at, completed_at] = ["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"];
  await requests.start(request, Date.parse(started_at));
  const done = { ...request, started_at, completed_at, cached: true, results: RESULTS, request_seq: 1 };
  await createAnalysisStore(bench.db).insert(done);
}

const failure = { failed_at: "2026-01-01T00:00:00.000Z", error: "INTERNAL", error_code: "source_failed", attempt: 3 };

async function walk(user: string, path: string, limit: number, field: string): Promise<Record<string, unknown>[]> {
  const items: Record<string, unknown>[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const url = `${bench.url}${path}?limit=${limit}${cursor === "" ? "" : `&cursor=${cursor}`}`;
    const { status, body } = await call(url, { user });
    expect(status).toBe(200);
    expect(body[field].length).toBeLessThanOrEqual(limit);
    items.push(...body[field]);
    cursor = body.next_cursor;
  }
  return items;
}

test("each status shows in an analysis and in the list, the newest first", async () => {
  const [a, b, c, d] = [await requested("ann"), await requested("ann"), await requested("ann"), await requested("ann")];
  await completed(a);
  await requests.start(b, Date.parse("2026-01-01T00:00:00.000Z"));
  await requests.start(c, 1);
  await requests.fail(c, failure);
  const common = { did: "bob", type: "flow", estimated_completion: expect.any(String) };
  const seen = (request: AnalysisRequest) => {
    const { analysis_id, requested_at } = request;
    return { analysis_id, requested_at, ...common };
  };
  const started_at = "2026-01-01T00:00:00.000Z";
  const views = [
    { ...seen(d), status: "queued" },
    {
      ...seen(c),
      status: "failed",
      started_at: expect.any(String),
      error: "INTERNAL",
    },
    { ...seen(b), status: "processing", started_at },
    {
      ...seen(a),
      status: "completed",
      started_at,
      completed_at: "2026-01-01T00:00:01.000Z",
      cached: true,
      results: RESULTS,
    },
  ];
  expect((await call(bench.url + LIST, { user: "ann" })).body).toEqual({ analyses: views, next_cursor: null });
  for (const view of views)
    expect((await call(`${bench.url}${LIST}/${view.analysis_id}`, { user: "ann" })).body).toEqual(view);
});

test("pages of any size hold every analysis once, and only the caller's own", async () => {
  const mine: string[] = [];
  for (let count = 0; count < 7; count++) {
    mine.unshift((await requested("bea")).analysis_id);
    await requested("bea2");
  }
  for (const limit of [1, 3, 7, 100])
    expect((await walk("bea", LIST, limit, "analyses")).map(({ analysis_id }) => analysis_id)).toEqual(mine);
  expect((await call(bench.url + LIST, { user: "nobody" })).body).toEqual({ analyses: [], next_cursor: null });
  const theirs = (await call(`${bench.url}${LIST}?limit=1&cursor=${mine[0]}`, { user: "bea2" })).body;
  expect(theirs.analyses.every((one: { analysis_id: string }) => !mine.includes(one.analysis_id))).toBe(true);
});

test("what has left the list of a user is listed from its row, and nobody asks NATS for all keys", async () => {
  const old = [await requested("old"), await requested("old"), await requested("old")];
  for (const one of old) await completed(one);
  const bucket = createBucket(bench.nats.connection, bench.nats.publish, "ANALYSES");
  await bucket.put("r.old.ids", [(old[2] as AnalysisRequest).analysis_id]);
  const asked: string[] = [];
  const watch = bench.nats.connection.subscribe("$JS.API.STREAM.INFO.KV_ANALYSES", {
    callback: (_error, message) => void asked.push(message.string()),
  });
  const ids = old.map(({ analysis_id }) => analysis_id).reverse();
  for (const limit of [1, 2, 10])
    expect((await walk("old", LIST, limit, "analyses")).map(({ analysis_id }) => analysis_id)).toEqual(ids);
  await bench.nats.connection.flush();
  watch.unsubscribe();
  expect(asked).toEqual([]);
});

test("of the lists that a user asks for at once two are read at a time, and nobody else's wait for them", async () => {
  for (const user of ["many", "few"]) await requested(user);
  let [held, release] = [0, (): void => undefined];
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const query: Db["query"] = async (sql, params, ...how) => {
    if (params?.[0] === "many") {
      held++;
      await released;
    }
    return bench.db.query(sql, params, ...how);
  };
  const url = await bench.another({ db: { ...bench.db, query } });
  const lists = Array.from({ length: 16 }, () => call(url + LIST, { user: "many" }));
  await eventually(() => held >= 2, "lists are read");
  for (let times = 0; times < 16; times++)
    expect((await call(url + LIST, { user: "few" })).body.analyses).toHaveLength(1);
  expect(held).toBe(2);
  release();
  for (const { status, body } of await Promise.all(lists)) expect([status, body.analyses.length]).toEqual([200, 1]);
  expect(held).toBe(16);
});

test("rewards are listed with their total, the newest first", async () => {
  const store = createRewardStore(bench.db);
  const ids = Array.from({ length: 5 }, () => v7());
  for (const [at, event_id] of ids.entries()) {
    const award = { event_id, user_id: "cy", amount: 15, multiplier: 1.5, reason: "timeline_analysis" as const };
    await store.award({ ...award, earned_at: new Date(1_700_000_000_000 + at).toISOString() }, at + 1);
  }
  const first = (await call(`${bench.url}/api/v1/xp?limit=2`, { user: "cy" })).body;
  expect(first).toMatchObject({ user_id: "cy", total: 75, next_cursor: expect.any(String) });
  expect(first.transactions[0]).toEqual({
    ...{ event_id: ids[4], amount: 15, multiplier: 1.5, reason: "timeline_analysis" },
    earned_at: "2023-11-14T22:13:20.004Z",
  });
  const all = await walk("cy", "/api/v1/xp", 2, "transactions");
  expect(all.map(({ event_id }) => event_id)).toEqual([...ids].reverse());
  const none = { user_id: "nobody", total: 0, transactions: [], next_cursor: null };
  expect((await call(`${bench.url}/api/v1/xp`, { user: "nobody" })).body).toEqual(none);
});

const LIMIT = { field: "limit", detail: "must be a whole number from 1 to 100" };
const CURSOR = { field: "cursor", detail: "is no cursor of this list" };

test.each([
  ["limit=0", LIMIT],
  ["limit=101", LIMIT],
  ["limit=1.5", LIMIT],
  ["limit=x", LIMIT],
  ["limit=1&limit=2", LIMIT],
  ["cursor=x", CURSOR],
  ["cursor=", CURSOR],
])("%s is refused by both lists, in the same words", async (query, fault) => {
  for (const path of [LIST, "/api/v1/xp"]) {
    const { status, body } = await call(`${bench.url}${path}?${query}`, { user: "ben" });
    expect([path, status, body.errors]).toEqual([path, 400, [fault]]);
  }
});

test("while the database is away, what rests on NATS is answered, and what cannot be known is 503", async () => {
  const gone = async (): Promise<never> => {
    throw new AppError("unavailable", "the database is unavailable");
  };
  const db: Db = { query: gone, run: gone, transaction: gone, listen: gone, close: gone };
  for (const url of [
    await bench.another({ db, rewards: createRewardStore(db) }),
    await bench.another({ db: undefined, rewards: undefined }),
  ]) {
    const { status, body } = await post(url, `out-${url}`);
    expect(status).toBe(202);
    expect((await call(url + body.status_url, { user: `out-${url}` })).body.status).toBe("queued");
    const begun = await requested(`out-${url}`);
    await requests.start(begun, 1);
    for (const path of [`${LIST}/${begun.analysis_id}`, LIST, "/api/v1/xp", `${LIST}/${v7()}`]) {
      const { status: away, headers } = await call(url + path, { user: `out-${url}` });
      expect([path, away, headers.has("retry-after")]).toEqual([path, 503, true]);
    }
    expect((await call(`${url}${LIST}/no-id`, { user: "ben" })).status).toBe(404);
  }
});

// Invariant 9.
test("a user whom no database stores is told so, and other odd users are served as any", async () => {
  const paths = ["xp", "timeline/analyses", `timeline/analyses/${v7()}`].map((path) => `${bench.url}/api/v1/${path}`);
  const answersTo = async (user: string) => [
    await post(bench.url, user),
    ...(await Promise.all(paths.map((path) => call(path, { user })))),
  ];
  for (const user of ["a\0b", "\0"]) {
    const answers = await answersTo(user);
    expect(answers.map(({ status, body }) => [status, body.errors?.[0]?.field])).toEqual(Array(4).fill([400, "sub"]));
  }
  for (const user of ["a.b", "*", ">", " ", "x".repeat(128), "=YWRh", "%", "'; DROP TABLE", "ü\u202e"])
    expect((await answersTo(user)).map(({ status }) => status)).toEqual([202, 200, 200, 404]);
});
