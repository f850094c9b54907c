import { expect, test } from "@jest/globals";
import { HOUR, momentNow, timeOf } from "../../../src/kernel/time.js";

test("the time of a moment is in whole ms, and no later than the moment", () => {
  const moments = Array.from({ length: 100 }, momentNow);
  for (const moment of moments) {
    expect(Number.isInteger(timeOf(moment))).toBe(true);
    expect(timeOf(moment)).toBeLessThanOrEqual(moment.wall);
  }
});

test("the time of a moment follows a clock that was set back since", () => {
  const { wall, steady } = momentNow();
  const before = Date.now();
  const time = timeOf({ wall: wall + HOUR, steady });
  expect(time).toBeLessThanOrEqual(Date.now());
  expect(time).toBeGreaterThan(before - HOUR);
});
