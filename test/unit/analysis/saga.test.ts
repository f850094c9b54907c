import { expect, test } from "@jest/globals";
import fc from "fast-check";
import {
  type CompletedAnalysis,
  decideFailure,
  decideStart,
  type Facts,
  mayBeCompleted,
  type Status,
  statusOf,
  viewOf,
} from "../../../src/analysis/saga.js";
import { AccountGone } from "../../../src/analysis/sources/source.js";
import { resultsFor } from "../../../src/contracts/analysis.js";
import { AppError } from "../../../src/kernel/errors.js";

const AT = "2026-01-02T03:04:05.000Z";
const request = {
  analysis_id: "01900000-0000-7000-8000-000000000001",
  user_id: "ada",
  did: "bob",
  type: "flow",
  tier: "DRIFT",
  requested_at: AT,
} as const;
const failed = { failed_at: AT, error: "the source answers 500", error_code: "source_failed", attempt: 3 };
const completed: CompletedAnalysis = {
  ...request,
  started_at: AT,
  completed_at: AT,
  cached: false,
  results: { version: "1", posts: 0 },
  request_seq: 7,
};

test.each<[string, Facts, CompletedAnalysis | undefined, Status]>([
  ["a request alone", { request }, undefined, "queued"],
  ["a worker that began", { request, startedAt: AT }, undefined, "processing"],
  ["a final failure", { request, startedAt: AT, failed }, undefined, "failed"],
  ["a request that NATS gave up", { request, abandoned: true }, undefined, "failed"],
  ["a worker that began, and NATS gave up", { request, startedAt: AT, abandoned: true }, undefined, "failed"],
  ["a row", { request, startedAt: AT }, completed, "completed"],
  ["a row of a request that NATS gave up: it was redriven", { request, abandoned: true }, completed, "completed"],
  ["a row after a failure: it was redriven", { request, startedAt: AT, failed }, completed, "completed"],
])("given %s, the status follows", (_given, facts, row, status) => {
  expect(statusOf(facts, row)).toBe(status);
  expect(viewOf(facts, row)).toMatchObject({ analysis_id: request.analysis_id, status, requested_at: AT });
});

test("given a request that NATS gave up, the view says so, and a reason that is known instead", () => {
  expect(viewOf({ request, startedAt: AT, abandoned: true }, undefined).error).toBe("the analysis was given up");
  expect(viewOf({ request, abandoned: true, failed }, undefined).error).toBe(failed.error);
});

// Invariant 12.
test("a fact that becomes known later never takes a status back", () => {
  const order: readonly Status[] = ["queued", "processing", "failed", "completed"];
  const known = { startedAt: AT, abandoned: true, failed, row: completed };
  const facts = fc.subarray(Object.keys(known) as (keyof typeof known)[]);
  const rankOf = (names: readonly (keyof typeof known)[]): number => {
    const { row, ...rest }: Partial<typeof known> = Object.fromEntries(names.map((name) => [name, known[name]]));
    return order.indexOf(statusOf({ request, ...rest }, row));
  };
  fc.assert(
    fc.property(facts, facts, (some, more) => {
      expect(rankOf([...some, ...more])).toBeGreaterThanOrEqual(rankOf(some));
    }),
  );
});

test("a request that no worker has begun needs no look at the database", () => {
  expect(mayBeCompleted({ request })).toBe(false);
  expect(mayBeCompleted({ request, startedAt: AT })).toBe(true);
});

test.each([
  ["no row", undefined, { seq: 7, redrives: 0 }, "analyse"],
  ["a row of this message", completed, { seq: 7, redrives: 0 }, "announce"],
  ["a row of another message", completed, { seq: 8, redrives: 0 }, "ignore"],
  ["a row, and a redriven message", completed, { seq: 8, redrives: 1 }, "announce"],
] as const)("given %s, a worker knows what to do", (_given, row, message, decided) => {
  expect(decideStart(row, message)).toBe(decided);
});

test("given a failure, an attempt is spent, the third one is final", () => {
  const error = new AppError("failed", "the source answers 500");
  const spent = { rethrow: true, error: "the source answers 500", error_code: "source_failed" };
  expect([1, 2, 3].map((attempt) => decideFailure(error, attempt))).toEqual([
    { ...spent, attempt: 1, final: false },
    { ...spent, attempt: 2, final: false },
    { ...spent, attempt: 3, final: true },
  ]);
});

test("given an error with the text of a server, an attempt shows the caller none of it", () => {
  const publicMessage = "GetDropsByUserID: INTERNAL";
  const error = new AppError("failed", `${publicMessage}: no table at db.internal`, { publicMessage });
  expect(decideFailure(error, 1)?.error).toBe(publicMessage);
});

test("given an outage, no attempt is spent", () => {
  expect(decideFailure(new AppError("unavailable", "Redis is away"), 3)).toBeUndefined();
});

test("given an account that is gone, the first failure is final and leaves no dead letter", () => {
  expect(decideFailure(new AccountGone("account_suspended", "taken down by mods.internal"), 1)).toEqual({
    attempt: 1,
    final: true,
    rethrow: false,
    error: "the account is suspended, deactivated or taken down",
    error_code: "account_suspended",
  });
});

test("the text of an error that is not ours is not published", () => {
  expect(decideFailure(new Error("password"), 1)).toMatchObject({
    error: "the analysis failed",
    error_code: "internal",
  });
});

test("of full results one measure is taken", () => {
  const results = { version: "1", posts: 2, from: AT, to: AT, flow: {}, clout: {}, kudos: {}, pulse: { a: 1 } };
  expect(resultsFor("pulse", results)).toEqual({ version: "1", posts: 2, from: AT, to: AT, pulse: { a: 1 } });
  expect(resultsFor("full", results)).toEqual(results);
});
