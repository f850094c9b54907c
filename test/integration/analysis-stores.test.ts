import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { v7 } from "uuid";
import { ANALYSIS_MIGRATIONS } from "../../src/analysis/index.js";
import { createRequests } from "../../src/analysis/requests.nats.js";
import type { CompletedAnalysis } from "../../src/analysis/saga.js";
import { createAnalysisStore } from "../../src/analysis/store.sql.js";
import type { XpEarned } from "../../src/contracts/analysis.js";
import { DAY, MINUTE } from "../../src/kernel/time.js";
import type { Db } from "../../src/platform/db/db.js";
import { createBucket } from "../../src/platform/nats/bucket.js";
import { createCalibration } from "../../src/rewards/calibration.sql.js";
import { createRewardStore, REWARDS_MIGRATIONS } from "../../src/rewards/index.js";
import { DATABASES, type DatabaseServer } from "../support/databases.js";
import { type NatsBench, openNats } from "../support/nats.js";

const AT = "2026-01-02T03:04:05.678Z";
const requestOf = (user_id: string, analysis_id: string = v7()) =>
  ({ analysis_id, user_id, did: "bob", type: "flow", tier: "LIFT", requested_at: AT }) as const;
const completedOf = (over: Partial<CompletedAnalysis> = {}): CompletedAnalysis => ({
  ...requestOf("ada"),
  started_at: AT,
  completed_at: AT,
  cached: false,
  results: { version: "1", posts: 3, from: AT, to: AT, flow: { posts_a_day: 1.5 } },
  request_seq: 7,
  ...over,
});

describe.each(DATABASES)("analyses and rewards on $name", ({ start }) => {
  let server: DatabaseServer;
  let db: Db;

  beforeAll(async () => {
    server = await start();
  }, 60_000);
  beforeEach(async () => {
    db = await server.emptyDatabase([ANALYSIS_MIGRATIONS, REWARDS_MIGRATIONS]);
  });
  afterAll(() => server.stop());

  test("the first result of an analysis stands, and only its user finds it", async () => {
    const store = createAnalysisStore(db);
    const first = completedOf();
    expect(await store.insert(first)).toEqual(first);
    expect(await store.insert({ ...first, cached: true, request_seq: 8 })).toEqual(first);
    expect(await store.find("ada", first.analysis_id)).toEqual(first);
    expect(await store.find("eve", first.analysis_id)).toBeUndefined();
    expect([...(await store.findAmong("ada", [first.analysis_id, v7()])).keys()]).toEqual([first.analysis_id]);
  });

  test("old analyses are removed, rewards never", async () => {
    const store = createAnalysisStore(db);
    const young = completedOf({ completed_at: new Date(Date.now() - 29 * DAY).toISOString() });
    await store.insert(young);
    await store.insert(completedOf({ completed_at: new Date(Date.now() - 31 * DAY).toISOString() }));
    expect(await store.removeOlderThan(30)).toBe(1);
    expect(await store.removeOlderThan(30)).toBe(0);
    expect(await store.find("ada", young.analysis_id)).toEqual(young);
  });

  test("without the tables nothing is completed and nobody has rewards", async () => {
    const empty = await server.emptyDatabase();
    expect(await createAnalysisStore(empty).find("ada", v7())).toBeUndefined();
    expect(await createRewardStore(empty).page("ada", { limit: 10 })).toEqual({ total: 0, transactions: [] });
  });

  const earned = (over: Partial<XpEarned> = {}): XpEarned => ({
    event_id: v7(),
    user_id: "ada",
    amount: 15,
    multiplier: 1.5,
    reason: "timeline_analysis",
    earned_at: AT,
    ...over,
  });

  // Invariant 12.
  test("an event is awarded once, however many award it at once, and totals are the sums", async () => {
    const store = createRewardStore(db);
    const awards = Array.from({ length: 20 }, (_, i) => earned({ user_id: i % 2 === 0 ? "ada" : "bob" }));
    const all = await Promise.all([...awards, ...awards].map((one) => store.award(one, 1)));
    for (const index of awards.keys()) expect(all[index]).toEqual(all[index + awards.length]);
    expect(
      all
        .slice(0, 20)
        .map((award) => award?.total ?? 0)
        .sort((a, b) => a - b)
        .at(-1),
    ).toBe(150);
    expect(await createCalibration(db)()).toBe(0);
    for (const user of ["ada", "bob"]) {
      const { total, transactions } = await store.page(user, { limit: 100 });
      expect([total, transactions.length]).toEqual([150, 10]);
    }
  });

  test("pages of rewards show each once, the newest first", async () => {
    const store = createRewardStore(db);
    const awards = Array.from({ length: 5 }, (_, i) => earned({ amount: 10 + i, multiplier: 1 }));
    for (const award of awards) await store.award(award, 1);
    const seen: string[] = [];
    let before: string | undefined;
    do {
      const page = await store.page("ada", { limit: 2, before });
      expect(page.total).toBe(60);
      seen.push(...page.transactions.map(({ event_id }) => event_id));
      before = page.next;
    } while (before !== undefined);
    expect(seen).toEqual(awards.map(({ event_id }) => event_id).reverse());
    await expect(store.page("ada", { limit: 2, before: "x" })).rejects.toMatchObject({ code: "invalid" });
  });

  test("a transaction cannot be changed", async () => {
    await createRewardStore(db).award(earned(), 1);
    await expect(db.query("UPDATE xp_transactions SET amount = 1")).rejects.toThrow(/append-only/);
  });

  test("wrong, missing and unfounded totals are found, some users at a time, and forgotten once they are right", async () => {
    const store = createRewardStore(db);
    const users = ["a", "b", "c", "d", "e", "f", "g"];
    for (const user_id of users) await store.award(earned({ user_id }), 1);
    const drifted = createCalibration(db, { users: 2, steps: 1 });
    const round = async (): Promise<number[]> => [await drifted(), await drifted(), await drifted(), await drifted()];
    expect(await round()).toEqual([0, 0, 0, 0]);
    await db.query("UPDATE xp_totals SET total = total + 1 WHERE user_id = 'b'");
    await db.query("DELETE FROM xp_totals WHERE user_id = 'e'");
    await db.query("DELETE FROM xp_transactions WHERE user_id = 'g'");
    // a and b, c and d, e to g, and then the end.
    expect(await round()).toEqual([1, 1, 3, 3]);
    await db.query("UPDATE xp_totals SET total = total - 1 WHERE user_id = 'b'");
    await db.query("DELETE FROM xp_totals WHERE user_id = 'g'");
    expect(await round()).toEqual([1, 1, 1, 1]);
  });
});

describe("facts", () => {
  let nats: NatsBench;

  beforeAll(async () => {
    nats = await openNats();
  }, 60_000);
  afterAll(() => nats.close());

  test("a key is created once, and replaced only at its revision", async () => {
    const bucket = createBucket(nats.connection, nats.publish, "ANALYSES");
    expect(await bucket.get("k.a")).toBeUndefined();
    expect(await Promise.all([bucket.create("k.a", 1), bucket.create("k.a", 2)])).toEqual([true, false]);
    const entry = await bucket.get("k.a");
    expect(entry?.value).toBe(1);
    expect(await bucket.replace("k.a", 3, entry?.revision as number)).toBe(true);
    expect(await bucket.replace("k.a", 4, entry?.revision as number)).toBe(false);
    await bucket.put("k.a", 5);
    expect((await bucket.get("k.a"))?.value).toBe(5);
  });

  test("facts of an analysis add up, and another user does not find them", async () => {
    const requests = createRequests(createBucket(nats.connection, nats.publish, "ANALYSES"));
    const request = requestOf("grace@example");
    await requests.record({ ...request, estimated_completion: AT });
    await requests.record(request);
    const { analysis_id } = request;
    const recorded = { ...request, estimated_completion: AT };
    expect(await requests.find("grace@example", analysis_id)).toEqual({ request: recorded });
    expect(await requests.find("grace", analysis_id)).toBeUndefined();
    await requests.start(request, Date.parse(AT));
    await requests.start(request, Date.now());
    const failure = { failed_at: AT, error: "e", error_code: "source_failed", attempt: 3 };
    await requests.fail(request, failure);
    expect(await requests.find("grace@example", analysis_id)).toEqual({
      request: recorded,
      startedAt: AT,
      failed: failure,
    });
  });

  test("the list of a user has each analysis once, the newest first, however many are added at once, and is bounded", async () => {
    const bucket = createBucket(nats.connection, nats.publish, "ANALYSES");
    const requests = createRequests(bucket);
    const ids = Array.from({ length: 30 }, (_, i) => v7({ msecs: Date.now() - i * 0.6 * DAY }));
    await Promise.all([...ids, ...ids.slice(0, 5)].map((id) => requests.record(requestOf("lin", id))));
    await requests.record(requestOf("other"));
    expect(await requests.listed("lin")).toEqual(ids);
    expect(await requests.listed("nobody")).toEqual([]);
    expect(await requests.userTokensOf(ids[3] as string)).toEqual(["lin"]);
    const many = Array.from({ length: 1_000 }, (_, i) => v7({ msecs: Date.now() - (i + 1) * MINUTE }));
    await bucket.put("r.many.ids", many);
    const newest = requestOf("many");
    await requests.record(newest);
    expect(await requests.listed("many")).toEqual([newest.analysis_id, ...many.slice(0, -1)]);
  });
});
