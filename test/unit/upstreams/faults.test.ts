import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { type Verdict, verdict } from "../../../src/delivery/verdict.js";
import { codeOf, subjectOf } from "../../../src/kernel/errors.js";
import { errorOf } from "../../../src/upstreams/call.grpc.js";
import { FAULTS, type Others, othersOf } from "../../../src/upstreams/faults.js";

type Fault = (typeof FAULTS)["error"]["mixed"];

const OTHERS: readonly Others[] = ["answered", "mixed", "failing"];
const TOO_LARGE = "Received message larger than max (9 vs. 4)";

const failed = (code: status, details: string): ServiceError =>
  Object.assign(new Error(details), { code, details, metadata: new Metadata() });

/** The verdict on a message at its third attempt and first delivery. */
const FATES: Readonly<Record<Fault, { readonly kind: Verdict["kind"]; readonly between: readonly [number, number] }>> =
  {
    outage: { kind: "wait", between: [100, 200] },
    subject: { kind: "return", between: [500, 1_200] },
    retry: { kind: "retry", between: [250, 2_000] },
  };

const answer: readonly Fault[] = ["retry", "retry", "retry"];
const refusal: readonly Fault[] = ["retry", "retry", "outage"];
const silence: readonly Fault[] = ["subject", "subject", "outage"];
const error: readonly Fault[] = ["retry", "subject", "outage"];

const ROWS: readonly (readonly [string, status, string, readonly Fault[]])[] = [
  ["UNIMPLEMENTED", status.UNIMPLEMENTED, "no such method", answer],
  ["a message that is too large", status.RESOURCE_EXHAUSTED, TOO_LARGE, answer],
  ["INVALID_ARGUMENT", status.INVALID_ARGUMENT, "user_id", refusal],
  ["NOT_FOUND", status.NOT_FOUND, "no such user", refusal],
  ["UNAVAILABLE", status.UNAVAILABLE, "no connection", silence],
  ["CANCELLED", status.CANCELLED, "x", error],
  ["UNKNOWN", status.UNKNOWN, "x", error],
  ["DEADLINE_EXCEEDED", status.DEADLINE_EXCEEDED, "x", error],
  ["ALREADY_EXISTS", status.ALREADY_EXISTS, "x", error],
  ["PERMISSION_DENIED", status.PERMISSION_DENIED, "x", error],
  ["RESOURCE_EXHAUSTED", status.RESOURCE_EXHAUSTED, "too many calls", error],
  ["FAILED_PRECONDITION", status.FAILED_PRECONDITION, "x", error],
  ["ABORTED", status.ABORTED, "x", error],
  ["OUT_OF_RANGE", status.OUT_OF_RANGE, "x", error],
  ["INTERNAL", status.INTERNAL, "x", error],
  ["DATA_LOSS", status.DATA_LOSS, "x", error],
  ["UNAUTHENTICATED", status.UNAUTHENTICATED, "x", error],
];

const CASES = ROWS.flatMap(([name, code, details, faults]) =>
  OTHERS.map((others, column) => ({
    name,
    others,
    fault: faults[column] as Fault,
    cause: failed(code, details),
    faults,
  })),
);

// Invariant 8.
test.each(CASES)("$name while others are $others: $fault", ({ others, fault, cause, faults }) => {
  const thrown = errorOf(cause, { name: "Get", subject: "anna", others });
  expect(codeOf(thrown)).toBe(fault === "retry" ? "failed" : "unavailable");
  // An answer is nobody's fault.
  expect(subjectOf(thrown)).toBe(fault === "outage" || faults === answer ? undefined : "anna");
  const { kind, between } = FATES[fault];
  const decided = verdict(thrown, { attempt: 3, waits: 0, deliveries: 1 }, { maxAttempts: 5, retryBaseMs: 500 });
  expect(decided).toEqual({ kind, delayMs: expect.any(Number) });
  const { delayMs } = decided as { readonly delayMs: number };
  expect(delayMs).toBeGreaterThanOrEqual(between[0]);
  expect(delayMs).toBeLessThanOrEqual(between[1]);
});

test("each status has a row, and each failure of the table is met", () => {
  const codes = new Set(ROWS.map(([, code]) => code));
  const all = Object.values(status).filter((code) => typeof code === "number" && code !== status.OK);
  expect(codes).toEqual(new Set(all));
  expect(Object.values(FAULTS).map((row) => OTHERS.map((others) => row[others]))).toEqual([
    answer,
    refusal,
    silence,
    error,
  ]);
});

test.each<[number, number, boolean, Others]>([
  // Nobody could be asked: the latest outcomes decide.
  [0, 0, false, "answered"],
  [0, 0, true, "failing"],
  // Most others are not answered.
  [1, 0, false, "failing"],
  [3, 1, false, "failing"],
  // Few others are answered, while most of the latest calls fail: attempts are spared, and others need not wait.
  [1, 1, true, "mixed"],
  [3, 2, true, "mixed"],
  [3, 2, false, "answered"],
  [2, 1, false, "answered"],
  // All of a sample are answered: the failures are those of a few subjects, however often they fail.
  [3, 3, true, "answered"],
])("of %i others %i are answered, most of the latest fail: %s", (asked, answered, areMostFailing, expected) => {
  expect(othersOf({ asked, answered }, areMostFailing)).toBe(expected);
});
