import { expect, test } from "@jest/globals";
import { type RetryLimits, type Verdict, verdict } from "../../../src/delivery/verdict.js";
import { AppError, type ErrorCode } from "../../../src/kernel/errors.js";

const LIMITS: RetryLimits = { maxAttempts: 3, retryBaseMs: 100 };

const FIRST = { attempt: 1, waits: 0, deliveries: 1 };

const shape = (decided: Verdict): string => (decided.kind === "dead-letter" ? decided.reason : decided.kind);

test.each<[ErrorCode, number, string]>([
  ["invalid", 1, "invalid"],
  ["poison", 1, "poison"],
  ["unavailable", 1, "wait"],
  ["unavailable", 99, "wait"],
  ["failed", 1, "retry"],
  ["failed", 2, "retry"],
  ["failed", 3, "exhausted"],
  ["failed", 4, "exhausted"],
  ["exhausted", 2, "retry"],
  ["exhausted", 3, "exhausted"],
  ["deadline", 2, "retry"],
  ["unauthenticated", 3, "exhausted"],
])("%s at attempt %i: %s", (code, attempt, expected) => {
  expect(shape(verdict(new AppError(code, "x"), { ...FIRST, attempt }, LIMITS))).toBe(expected);
});

test("an error that is not ours is tried again like any failure", () => {
  expect(shape(verdict(new TypeError("bug"), { ...FIRST, attempt: 2 }, LIMITS))).toBe("retry");
  expect(shape(verdict("text", { ...FIRST, attempt: 3 }, LIMITS))).toBe("exhausted");
});

test("retries and waits slow down, and are bounded", () => {
  const longest = (of: () => Verdict): number =>
    Math.max(...Array.from({ length: 200 }, () => (of() as { delayMs: number }).delayMs));
  const retry = (attempt: number) =>
    longest(() => verdict(new Error("x"), { ...FIRST, attempt }, { maxAttempts: 100, retryBaseMs: 100 }));
  expect(retry(1)).toBeLessThanOrEqual(100);
  expect(retry(4)).toBeGreaterThan(400);
  expect(retry(50)).toBeLessThanOrEqual(30_000);
  const wait = (waits: number) => longest(() => verdict(new AppError("unavailable", "x"), { ...FIRST, waits }, LIMITS));
  expect(wait(0)).toBeLessThanOrEqual(200);
  expect(wait(3)).toBeGreaterThan(800);
  expect(wait(1_000)).toBeLessThanOrEqual(5_000);
});

// Invariant 8.
test("what waits for one subject waits longer the longer it has waited, in less than 1,000 deliveries a day", () => {
  const error = new AppError("unavailable", "x", { subject: "anna" });
  const delays = Array.from({ length: 900 }, (_, at) => verdict(error, { ...FIRST, deliveries: at + 1 }, LIMITS));
  expect(new Set(delays.map(({ kind }) => kind))).toEqual(new Set(["return"]));
  const ms = delays.map((decided) => (decided as { delayMs: number }).delayMs);
  expect(ms[0]).toBeLessThan(1_500);
  expect(Math.max(...ms)).toBeLessThanOrEqual(300_000);
  expect(ms.reduce((sum, delay) => sum + delay, 0)).toBeGreaterThan(86_400_000);
});

test("a failure that says when to try again is not tried before", () => {
  const error = new AppError("failed", "x", { subject: "anna", retryAfterMs: 4_000 });
  expect(verdict(error, FIRST, LIMITS)).toEqual({ kind: "retry", delayMs: 4_000 });
});
