import { expect, test } from "@jest/globals";
import { HOUR, readClocks, wallTimeOf } from "../../../src/kernel/time.js";

test("the time of a clock reading is in whole ms, and no later than the reading", () => {
  const readings = Array.from({ length: 100 }, readClocks);
  for (const reading of readings) {
    expect(Number.isInteger(wallTimeOf(reading))).toBe(true);
    expect(wallTimeOf(reading)).toBeLessThanOrEqual(reading.wall);
  }
});

test("the time of a clock reading follows a clock that was set back since", () => {
  const { wall, monotonic } = readClocks();
  const before = Date.now();
  const time = wallTimeOf({ wall: wall + HOUR, monotonic });
  expect(time).toBeLessThanOrEqual(Date.now());
  expect(time).toBeGreaterThan(before - HOUR);
});
