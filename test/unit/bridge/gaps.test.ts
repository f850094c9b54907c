import { expect, test } from "@jest/globals";
import { Gaps } from "../../../src/bridge/bridge.js";
import { HOUR } from "../../../src/kernel/time.js";

const after = (wall: number) => ({ wall, monotonic: performance.now() });

/** Notes numbers of one producer, each a second after the one before; yields what was found. */
function noted(...numbers: readonly number[]): (number | undefined)[] {
  const gaps = new Gaps();
  return numbers.map((seq, index) => gaps.note("p", seq, after((index + 1) * 1_000)));
}

test("a number that follows the last one is no gap, nor is the first that is seen", () => {
  expect(noted(41, 42, 43)).toEqual([undefined, undefined, undefined]);
});

test("a number left out is a gap since the last one before it, once", () => {
  expect(noted(1, 2, 5, 6)).toEqual([undefined, undefined, 2_000, undefined]);
});

test("late and repeated numbers open no gap and close none", () => {
  expect(noted(5, 7, 6, 7, 8)).toEqual([undefined, 1_000, undefined, undefined, undefined]);
});

test("a producer that starts anew counts from 0 or 1", () => {
  expect(noted(900, 0, 1, 3)).toEqual([undefined, undefined, undefined, 3_000]);
  expect(noted(900, 1, 2, 4)).toEqual([undefined, undefined, undefined, 3_000]);
});

test("a producer that starts anew and whose first number is lost has a gap since its last number before", () => {
  expect(noted(99, 100, 2, 5, 9)).toEqual([undefined, undefined, undefined, 2_000, 4_000]);
  expect(noted(99, 100, 2, 3, 4)).toEqual([undefined, undefined, undefined, 2_000, undefined]);
});

test("two who share a name are no producer that starts anew", () => {
  expect(noted(100, 5, 101, 6, 102, 7)).toEqual(Array(6).fill(undefined));
});

// Invariant 5.
test("a gap begins no later than now, also where the clock was set back since the last number", () => {
  const gaps = new Gaps();
  gaps.note("p", 1, after(Date.now() + HOUR));
  expect(gaps.note("p", 3, after(Date.now()))).toBeLessThanOrEqual(Date.now());
});

test("producers are told apart", () => {
  const gaps = new Gaps();
  expect([
    gaps.note("a", 1, after(1)),
    gaps.note("b", 9, after(2)),
    gaps.note("a", 2, after(3)),
    gaps.note("b", 11, after(4)),
  ]).toEqual([undefined, undefined, undefined, 2]);
});
