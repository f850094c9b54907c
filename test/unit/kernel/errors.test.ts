import { status } from "@grpc/grpc-js";
import { expect, test } from "@jest/globals";
import { AppError, codeOf, oneLine, PRESENTATION } from "../../../src/kernel/errors.js";

test("every code has the gRPC status of its name in the gRPC specification", () => {
  const names = Object.fromEntries(
    Object.entries(PRESENTATION).map(([code, { grpcStatus }]) => [code, status[grpcStatus]]),
  );
  expect(names).toEqual({
    invalid: "INVALID_ARGUMENT",
    poison: "FAILED_PRECONDITION",
    notfound: "NOT_FOUND",
    conflict: "FAILED_PRECONDITION",
    gone: "FAILED_PRECONDITION",
    unavailable: "UNAVAILABLE",
    failed: "INTERNAL",
    unauthenticated: "UNAUTHENTICATED",
    forbidden: "PERMISSION_DENIED",
    exhausted: "RESOURCE_EXHAUSTED",
    deadline: "DEADLINE_EXCEEDED",
  });
});

test("an error that is no AppError counts as failed", () => {
  expect(codeOf(new AppError("unavailable", "away"))).toBe("unavailable");
  expect([codeOf(new TypeError("x")), codeOf("text"), codeOf(undefined)]).toEqual(["failed", "failed", "failed"]);
});

test("an error becomes one bounded line", () => {
  expect(oneLine(new Error(" a\r\n\tb\u0000c\u2028d "))).toBe("a b c d");
  expect(oneLine("x".repeat(5_000))).toHaveLength(1_024);
});
