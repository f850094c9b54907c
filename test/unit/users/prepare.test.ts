import { expect, test } from "@jest/globals";
import { createIsHot } from "../../../src/users/prepare.js";

const bench = (threshold: number) => {
  let time = 1_000_000;
  const isHot = createIsHot(threshold, () => time);
  return {
    pass: (ms: number) => {
      time += ms;
    },
    /** The number of changes at once that were called hot. */
    change: (user: string, times: number) => Array.from({ length: times }, () => isHot(user)).filter(Boolean).length,
  };
};

test("a user is hot from the first change above the threshold", () => {
  const { change } = bench(200);
  expect(change("star", 200)).toBe(0);
  expect(change("star", 50)).toBe(50);
  expect(change("other", 1)).toBe(0);
});

test("the previous second counts in proportion", () => {
  const { change, pass } = bench(100);
  change("star", 60);
  pass(1_000);
  // Nothing of the last second has passed out of sight yet.
  expect(change("star", 1)).toBe(0);
  pass(500);
  expect(change("star", 40)).toBe(0);
  expect(change("star", 40)).toBe(11);
});

test("a hot user stays hot between two rounds of changes, and is not after ten quiet seconds", () => {
  const { change, pass } = bench(10);
  expect(change("star", 100)).toBe(90);
  pass(2_000);
  expect(change("star", 10)).toBe(10);
  pass(10_000);
  expect(change("star", 10)).toBe(0);
});

test("a steady rate below the threshold is never hot, one above it is", () => {
  const calm = bench(100);
  const busy = bench(100);
  let [hotCalm, hotBusy] = [0, 0];
  for (let ms = 0; ms < 5_000; ms += 20) {
    calm.pass(20);
    busy.pass(20);
    hotCalm += calm.change("star", 1);
    hotBusy += busy.change("star", 4);
  }
  expect(hotCalm).toBe(0);
  expect(hotBusy).toBeGreaterThan(700);
});
