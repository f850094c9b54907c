import { expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { createIdempotencyKeys } from "../../src/analysis/http/idempotency.nats.js";
import { createRequests } from "../../src/analysis/requests.nats.js";
import type { AnalysisRequest } from "../../src/contracts/analysis.js";
import { ANALYSIS_COMPLETED, ANALYSIS_REQUESTED, DLQ_HEADER, STREAM } from "../../src/contracts/subjects.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { encodeId } from "../../src/kernel/ids.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { analysesAskedKey, readsKey, SOURCE_TURN_KEYS } from "../../src/state/keys.js";
import { ADA, sharedErasureBench } from "../support/analysis-erasure.js";
import { allTraces, sortedTraces, tracesOf, tracesWithout } from "../support/analysis-traces.js";
import { eventually } from "../support/eventually.js";
import { failpointsOf } from "../support/failpoints.js";

const DID = `did:plc:${"a".repeat(24)}`;

const { saga, left } = sharedErasureBench();

const bucket = () => createBucket(saga.nats.connection, saga.nats.publish, "ANALYSES");

/** Analyses in each state, by and about several users. */
async function populate(): Promise<AnalysisRequest[]> {
  saga.startWorkers();
  const pairs = [
    [ADA, "bob"],
    [ADA, ADA],
    ["bob", ADA],
    ["cleo", ADA],
    ["cleo", "bob"],
    [ADA, DID],
    ["bob", DID],
    [ADA, "nobody"],
    ["bob", "nobody"],
  ] as const;
  const asked: AnalysisRequest[] = [];
  for (const [user_id, did] of pairs) asked.push(await saga.ask({ user_id, did }));
  await saga.settled();
  await saga.stopWorkers();
  for (const [user_id, did] of pairs) asked.push(await saga.ask({ user_id, did }));
  const requests = createRequests(bucket());
  for (const one of asked.slice(-6)) await requests.start(one, Date.now());
  // Facts may expire before the row and the list.
  await bucket().purge(`r.bob.*.${asked[2]?.analysis_id}.*`);
  // Its row was removed, or it never had one.
  await requests.fail((await saga.ask({ user_id: "cleo", did: ADA })) as AnalysisRequest, {
    ...{ failed_at: new Date().toISOString(), error: "it failed", error_code: "source_failed", attempt: 3 },
  });
  const keys = createIdempotencyKeys(bucket());
  for (const user of [ADA, "bob"]) {
    const answer = { analysis_id: v7(), status: "queued", estimated_completion: "", status_url: "" } as const;
    await keys.claim(user, "one", { at: new Date().toISOString(), body: "", answer, accepted: true });
    for (const key of [analysesAskedKey(user), readsKey(user)]) await saga.redis.raw.set(key, "1");
    for (const key of SOURCE_TURN_KEYS) await saga.redis.raw.zadd(key, 1, encodeId(user));
  }
  return asked;
}

test("nothing names an erased user any more, and everything else stands", async () => {
  await populate();
  const before = await allTraces(saga);
  expect(tracesOf(ADA, before).length).toBeGreaterThan(40);
  await saga.erase(ADA);
  const after = await allTraces(saga);
  expect(sortedTraces(tracesOf(ADA, after))).toEqual([]);
  expect(sortedTraces(after)).toEqual(sortedTraces(tracesWithout(ADA, before)));
  await Promise.all([saga.erase(ADA), saga.erase(ADA)]);
  expect(sortedTraces(await allTraces(saga))).toEqual(sortedTraces(after));
  saga.startWorkers();
  await saga.settled();
  expect(await left()).toEqual([]);
  expect(await saga.db.query("SELECT FROM timeline_analyses WHERE user_id = 'bob' AND did = $1", [DID])).toHaveLength(
    2,
  );
}, 60_000);

test("an erasure that ends at any step is done by the next one", async () => {
  await populate();
  const before = await allTraces(saga);
  const steps = ["marked", "queue", "facts", "some rows", "rows", "events", "some rewards", "rewards"];
  for (const step of steps) {
    hookFailpoints(failpointsOf(`forgetting=throw@${step}`));
    await expect(saga.erase(ADA)).rejects.toThrow("failpoint forgetting");
    await populateAgain();
  }
  hookFailpoints(undefined);
  await saga.erase(ADA);
  const others = tracesWithout(ADA, before);
  expect(sortedTraces(await allTraces(saga))).toEqual(sortedTraces(others));
}, 60_000);

/** Whatever a step removed is there again, so that each step has something to remove. */
async function populateAgain(): Promise<void> {
  await saga.db.run("TRUNCATE erased_analyses, erased_rewards");
  const [id, at] = [v7(), Date.now()];
  await saga.db.query(
    `INSERT INTO timeline_analyses SELECT $1, $2, 'bob', 'flow', 'DRIFT', $3, $3, $3, false, '{}', 1`,
    [id, ADA, at],
  );
  await saga.db.query(
    `INSERT INTO xp_transactions SELECT $1, $2, 10, 1, 'timeline_analysis', $3, 1, 1 + coalesce(max(position), 0), 10
     FROM xp_transactions WHERE user_id = $2`,
    [id, ADA, at],
  );
}

/** The user has 2,500 analyses and as many rewards. */
async function insertRows(): Promise<void> {
  await saga.db.query(
    `INSERT INTO timeline_analyses SELECT gen_random_uuid(), CASE WHEN n % 2 = 0 THEN $1 ELSE 'bob' END,
       CASE WHEN n % 2 = 0 THEN 'bob' ELSE $1 END, 'flow', 'DRIFT', 1, 1, extract(epoch FROM now()) * 1000, false, '{}', 1 FROM generate_series(1, 2500) n`,
    [ADA],
  );
  await saga.db.query(
    `INSERT INTO xp_transactions SELECT gen_random_uuid(), $1, 10, 1, 'timeline_analysis', 1, 1, n, 10 * n
     FROM generate_series(1, 2500) n`,
    [ADA],
  );
  await saga.db.query("INSERT INTO xp_totals VALUES ($1, 2500, 25000)", [ADA]);
}

test.each([
  ["analyses", "some rows", "timeline_analyses"],
  ["rewards", "some rewards", "xp_transactions"],
] as const)(
  "a process that stops while %s are removed leaves the rest to another one",
  async (part, step, table) => {
    await insertRows();
    const stopping = new AbortController();
    hookFailpoints(async (_, about) => {
      if (about.includes(step)) stopping.abort();
    });
    await expect(saga.forget(part, ADA, stopping.signal)).rejects.toMatchObject({ code: "unavailable" });
    expect(await saga.db.query(`SELECT FROM ${table}`)).toHaveLength(1_500);
  },
  60_000,
);

test("rows are removed a thousand at a time, and the total stays the sum of the rest", async () => {
  await insertRows();
  hookFailpoints(failpointsOf("forgetting=throw@some rewards"));
  await expect(saga.forget("rewards", ADA)).rejects.toThrow("failpoint");
  expect(await saga.db.query("SELECT total::float8 AS total FROM xp_totals")).toEqual([{ total: 15_000 }]);
  hookFailpoints(undefined);
  await saga.erase(ADA);
  expect(await left()).toEqual([]);
}, 60_000);

test("late messages that name an erased user change nothing", async () => {
  await populate();
  await saga.erase(ADA);
  saga.startWorkers();
  await saga.settled();
  const before = await allTraces(saga);
  await saga.listen(ADA);
  const late = { analysis_id: v7(), type: "flow", tier: "DRIFT", requested_at: new Date().toISOString() } as const;
  const headers = { [DLQ_HEADER.redriveCount]: "1" };
  const requests = createRequests(bucket());
  for (const [user_id, did] of [
    [ADA, "bob"],
    ["bob", ADA],
    [ADA, DID],
  ] as const) {
    const request = { ...late, analysis_id: v7(), user_id, did };
    await requests.record(request);
    const body = Buffer.from(JSON.stringify(request));
    await saga.nats.publish({ subject: ANALYSIS_REQUESTED, body, id: v7(), headers });
  }
  const completed = { ...late, event_id: late.analysis_id, user_id: ADA, did: "bob", cached: false };
  for (const extra of [{}, headers]) {
    const body = Buffer.from(JSON.stringify({ ...completed, completed_at: late.requested_at }));
    await saga.nats.publish({ subject: ANALYSIS_COMPLETED, body, id: v7(), headers: extra });
  }
  await saga.settled();
  await saga.redis.raw.zrem("sse_recent:users", encodeId(ADA));
  expect(sortedTraces(await allTraces(saga))).toEqual(sortedTraces(before));
  expect(await saga.bodies(STREAM.notify)).toEqual([]);
}, 60_000);

test("a late event about an erased user still rewards its user, and does not stay", async () => {
  await saga.erase(ADA);
  saga.startWorkers();
  const at = new Date().toISOString();
  const id = v7();
  const event = { event_id: id, analysis_id: id, user_id: "bob", did: ADA, type: "flow", tier: "JET", cached: false };
  const body = Buffer.from(JSON.stringify({ ...event, completed_at: at }));
  await saga.nats.publish({ subject: ANALYSIS_COMPLETED, body, id: "late" });
  await saga.settled();
  expect(await saga.db.query("SELECT user_id, amount::int AS amount FROM xp_transactions")).toEqual([
    { user_id: "bob", amount: 20 },
  ]);
  expect(await left()).toEqual([]);
});

test("others get their rewards before the events of their analyses of an erased user go", async () => {
  await saga.erased.announce("rewards");
  const at = new Date().toISOString();
  const id = v7();
  const event = { event_id: id, analysis_id: id, user_id: "bob", did: ADA, type: "flow", tier: "JET", cached: false };
  const body = Buffer.from(JSON.stringify({ ...event, completed_at: at }));
  await saga.nats.publish({ subject: ANALYSIS_COMPLETED, body, id });
  const reached = { rows: false };
  hookFailpoints(async (_, about) => {
    if (about.includes("rows")) reached.rows = true;
  });
  const erasing = saga.erase(ADA);
  await eventually(() => reached.rows, "only the events are left");
  expect(await saga.bodies(STREAM.timelineEvents)).toHaveLength(1);
  saga.startWorkers();
  await erasing;
  await saga.settled();
  expect(await saga.bodies(STREAM.gamification)).toMatchObject([{ user_id: "bob", amount: 20 }]);
  expect(await left()).toEqual([]);
});
