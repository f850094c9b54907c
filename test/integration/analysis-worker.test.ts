import { afterAll, afterEach, beforeAll, beforeEach, expect } from "@jest/globals";
import { createAnalysisOperations } from "../../src/analysis/operations.nats.js";
import { AccountGone } from "../../src/analysis/sources/source.js";
import { ANALYSIS_FAILED, STREAM } from "../../src/contracts/subjects.js";
import { AppError } from "../../src/kernel/errors.js";
import { hookFailpoints } from "../../src/kernel/failpoints.js";
import { createDeadLetters } from "../../src/operators/dead-letters/index.js";
import { openSaga, post, type SagaBench } from "../support/analysis.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { becomes, eventually } from "../support/eventually.js";
import { failpointsOf } from "../support/failpoints.js";
import { SAGA_STEPS } from "../support/saga-steps.js";
import { slowTest, quickTest as test } from "../support/suite.js";

const DID = `did:plc:${"a".repeat(24)}`;

let server: DatabaseServer;
let saga: SagaBench;

beforeAll(async () => {
  server = await (DATABASES[0] as (typeof DATABASES)[number]).start();
  saga = await openSaga(await server.newDatabase());
}, 60_000);
beforeEach(async () => {
  await saga.db.run("TRUNCATE timeline_analyses, xp_transactions, xp_totals");
  await saga.redis.raw.flushall();
  for (const stream of [STREAM.notify, STREAM.dlq, STREAM.gamification]) await saga.nats.manager.streams.purge(stream);
  saga.posts = () => [post(Date.now() - 1_000)];
  saga.publishing = () => undefined;
  saga.reads.clear();
  saga.startWorkers();
});
afterEach(async () => {
  hookFailpoints(undefined);
  await saga.stopWorkers();
});
afterAll(async () => {
  await saga.close();
  await server.stop();
});

const failures = async (id: string) =>
  (await saga.bodies(STREAM.timelineEvents, "events.timeline.failed")).filter((one) => one["analysis_id"] === id);

test("an analysis is completed, rewarded and told once, and a second one is answered from the cache", async () => {
  await saga.listen("ada");
  const first = await saga.ask();
  await saga.settled();
  const second = await saga.ask();
  await saga.settled();
  expect(saga.reads.get("bob")).toBe(1);
  expect(await saga.faults([first, second])).toEqual([]);
  const completed = await saga.bodies(STREAM.timelineEvents, "events.timeline.completed");
  const { analysis_id, user_id, did, type, tier } = first;
  expect(completed.filter((one) => one["analysis_id"] === analysis_id)).toEqual([
    { event_id: analysis_id, analysis_id, user_id, did, type, tier, cached: false, completed_at: expect.any(String) },
  ]);
  expect(completed.at(-1)).toMatchObject({ analysis_id: second.analysis_id, cached: true });
  const told = await saga.bodies(STREAM.notify);
  const status_url = `/api/v1/timeline/analyses/${analysis_id}`;
  expect(told).toEqual(
    expect.arrayContaining([
      { event: "analysis_completed", analysis_id, did, type, status_url },
      { event: "xp_earned", event_id: analysis_id, amount: 10, total: 10 },
      { event: "xp_earned", event_id: second.analysis_id, amount: 10, total: 20 },
    ]),
  );
  expect(told).toHaveLength(4);
});

test("a user without a stream is not notified", async () => {
  const request = await saga.ask();
  await saga.settled();
  expect(await saga.faults([request])).toEqual([]);
  expect(await saga.bodies(STREAM.notify)).toEqual([]);
});

test("a request for one measure is answered from a full analysis", async () => {
  await saga.ask({ type: "full", tier: "LIFT" });
  await saga.settled();
  const one = await saga.ask({ type: "pulse" });
  await saga.settled();
  expect(saga.reads.get("bob")).toBe(1);
  const [row] = await saga.db.query<{ results: object; cached: boolean }>(
    "SELECT results, cached FROM timeline_analyses WHERE analysis_id = $1",
    [one.analysis_id],
  );
  expect(row?.cached).toBe(true);
  expect(Object.keys(row?.results ?? {}).sort()).toEqual(["from", "posts", "pulse", "to", "version"]);
});

// Invariant 12.
test("after three attempts an analysis failed; redriven, it is completed", async () => {
  await saga.listen("ada");
  saga.posts = () => {
    throw new AppError("failed", "the source answers 500");
  };
  const request = await saga.ask({ did: DID });
  await saga.settled();
  const { analysis_id, user_id, did, type } = request;
  const failure = { analysis_id, user_id, did, type, error: "the source answers 500", error_code: "source_failed" };
  expect(await failures(analysis_id)).toEqual([
    { ...failure, attempt: 1, final: false },
    { ...failure, attempt: 2, final: false },
    { ...failure, attempt: 3, final: true },
  ]);
  expect(await saga.statusOf(request)).toBe("failed");
  const letters = createDeadLetters({ nats: saga.nats.connection, publish: saga.nats.publish, upstreams: undefined });
  const listed = [];
  for await (const one of letters.list({ event: "analysis_requested" })) listed.push(one);
  const [letter] = listed;
  expect(listed).toHaveLength(1);
  expect(letter?.summary).toMatchObject({ reason: "exhausted", deliveries: 3, stream: "TIMELINE" });
  expect(await saga.bodies(STREAM.notify)).toEqual([
    { event: "analysis_failed", analysis_id, error_code: "source_failed" },
  ]);
  expect(await saga.faults([request])).toEqual([]);
  let left = 1;
  saga.posts = () => {
    if (left-- > 0) throw new AppError("failed", "once more");
    return [];
  };
  await letters.redrive([letter?.summary.seq as number]);
  await saga.settled();
  expect(await saga.statusOf(request)).toBe("completed");
  const operations = createAnalysisOperations({ nats: saga.nats.connection, publish: saga.nats.publish });
  expect(await operations.show(analysis_id)).toMatchObject({ status: "completed", error_code: null });
  expect((await failures(analysis_id)).at(-1)).toMatchObject({ attempt: 1, final: false });
  expect(await saga.faults([request])).toEqual([]);
});

test.each(["account_unknown", "account_suspended"] as const)(
  "an account that is gone (%s) fails at once, without a dead letter",
  async (code) => {
    await saga.listen("ada");
    saga.posts = () => {
      throw new AccountGone(code, "the account is gone");
    };
    const request = await saga.ask({ did: `did:web:${code.replace("_", "-")}.example` });
    await saga.settled();
    expect(await failures(request.analysis_id)).toMatchObject([{ attempt: 1, final: true, error_code: code }]);
    expect(await saga.statusOf(request)).toBe("failed");
    expect(await saga.bodies(STREAM.dlq)).toEqual([]);
    expect(await saga.bodies(STREAM.notify)).toMatchObject([{ event: "analysis_failed", error_code: code }]);
  },
);

test.each([
  ["third", new AppError("failed", "the source answers 500"), 3],
  ["first", new AccountGone("account_suspended", "suspended"), 1],
  // Invariant 12.
])(
  "an analysis whose final failure (the %s) NATS did not take is completed for operators, too",
  async (_, error, last) => {
    saga.posts = () => {
      throw error;
    };
    let told = 0;
    saga.publishing = (subject) => {
      if (subject !== ANALYSIS_FAILED || ++told !== last) return;
      saga.posts = () => [];
      throw new AppError("unavailable", "NATS: no PubAck");
    };
    const request = await saga.ask({ did: `did:web:${last}.example` });
    await saga.settled();
    expect([told, await saga.statusOf(request)]).toEqual([last, "completed"]);
    const operations = createAnalysisOperations({ nats: saga.nats.connection, publish: saga.nats.publish });
    expect(await operations.show(request.analysis_id)).toMatchObject({ status: "completed", error_code: null });
    expect(await saga.faults([request])).toEqual([]);
  },
);

// Invariant 12.
test("after a crash that follows a final failure the next attempt repeats it, and its user is told once", async () => {
  await saga.listen("ada");
  saga.posts = () => {
    throw new AccountGone("account_unknown", "Profile not found");
  };
  hookFailpoints(failpointsOf("handled=throw"));
  const request = await saga.ask({ did: "did:plc:nobody" });
  const letter = async () => (await saga.bodies(STREAM.dlq)).length === 1;
  await eventually(letter, "each attempt ended after its failure was told");
  hookFailpoints(undefined);
  await saga.settled();
  expect(await failures(request.analysis_id)).toMatchObject([
    { attempt: 1, final: true, error_code: "account_unknown" },
  ]);
  expect(await saga.bodies(STREAM.notify)).toMatchObject([{ event: "analysis_failed" }]);
  expect(await saga.statusOf(request)).toBe("failed");
});

test("an account without posts is a result", async () => {
  saga.posts = () => [];
  const request = await saga.ask({ did: "nobody", type: "full" });
  await saga.settled();
  expect(await saga.statusOf(request)).toBe("completed");
});

// Invariant 12.
test("a request that is published again is analysed, rewarded and told once", async () => {
  await saga.listen("ada");
  const request = await saga.ask();
  await Promise.all([saga.askAgain(request), saga.askAgain(request)]);
  await saga.settled();
  await saga.askAgain(request);
  await saga.settled();
  expect(await saga.faults([request])).toEqual([]);
  expect(await saga.bodies(STREAM.notify)).toHaveLength(2);
});

test("a message that is not a request becomes a dead letter", async () => {
  const body = Buffer.from(JSON.stringify({ analysis_id: "17" }));
  await saga.nats.publish({ subject: "events.timeline.requested", body, id: "bad" });
  await saga.settled();
  const { state } = await saga.nats.manager.streams.info(STREAM.dlq, { subjects_filter: ">" });
  expect(state.subjects).toEqual({ "dlq.invalid.analysis_requested": 1 });
});

// Invariant 12.
test.each(SAGA_STEPS)("a failure after %s leaves one result, one reward and one notification", async (step) => {
  await saga.listen("ada");
  hookFailpoints(failpointsOf(`${step}=throw`));
  const request = await saga.ask({ did: step });
  await eventually(async () => {
    const tried = [...(await failures(request.analysis_id)), ...(await saga.bodies(STREAM.timelineEvents))];
    return tried.length > 0;
  }, "the step was reached").catch(() => undefined);
  hookFailpoints(undefined);
  await saga.settled();
  expect(await saga.faults([request])).toEqual([]);
});

// Invariant 12.
slowTest(
  "outages of Redis and NATS spend no attempt",
  async () => {
    await saga.listen("ada");
    const requests = [];
    for (let i = 0; i < 20; i++) requests.push(await saga.ask({ did: `account-${i}` }));
    await saga.nats.restart();
    await saga.redis.raw.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    for (let i = 20; i < 40; i++)
      await becomes(async () => void requests.push(await saga.ask({ did: `account-${i}` })));
    await saga.settled(60_000);
    expect(await saga.faults(requests)).toEqual([]);
    for (const { analysis_id } of requests) expect(await failures(analysis_id)).toEqual([]);
  },
  90_000,
);
