import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { delayOf } from "../../../clients/typescript/src/delay.js";

const SECOND = 1_000;

test("a delay is never below a second, never below what the server names, and at most half a minute above it", () => {
  fc.assert(
    fc.property(
      fc.nat(10_000),
      fc.nat(3_600 * SECOND),
      fc.double({ min: 0, max: 0.999_999, noNaN: true }),
      (...args) => {
        const [failures, named, random] = args;
        const delay = delayOf(failures, named, () => random);
        const floor = Math.max(named, SECOND);
        expect(delay).toBeGreaterThanOrEqual(floor);
        expect(delay).toBeLessThanOrEqual(floor + 30 * SECOND);
      },
    ),
  );
});

test("the random part doubles with each failure, so that clients come back one by one", () => {
  const widths = [0, 1, 2, 3, 4, 5, 9].map((failures) => delayOf(failures, 0, () => 1) - delayOf(failures, 0, () => 0));
  expect(widths).toEqual([1, 2, 4, 8, 16, 30, 30].map((seconds) => seconds * SECOND));
});

test("a server that names a time beyond an hour is asked after an hour", () => {
  expect(delayOf(0, Number.MAX_SAFE_INTEGER, () => 0)).toBe(3_600 * SECOND);
});
