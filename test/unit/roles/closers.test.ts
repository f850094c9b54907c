import { expect, test } from "@jest/globals";
import { silent } from "../../../src/kernel/logger.js";
import { Closers } from "../../../src/roles/closers.js";

/** Closes that take so many ms each, and the times they were given. */
async function closed(graceMs: number, takes: readonly number[]): Promise<number[]> {
  let now = 5_000;
  const closers = new Closers(() => now);
  const given: number[] = [];
  for (const ms of [...takes].reverse())
    closers.add(`takes ${ms} ms`, (leftMs) => {
      given.push(leftMs);
      now += ms;
    });
  expect(await closers.closeAll(silent, graceMs)).toBe(true);
  return given;
}

test("all closes share one grace: each gets what those before it have left", async () => {
  expect(await closed(20_000, [0, 12_000, 3_000, 0])).toEqual([20_000, 20_000, 8_000, 5_000]);
});

test("once the grace is over, a close still gets a second, and no more than the grace was", async () => {
  expect(await closed(20_000, [20_000, 1_000, 0])).toEqual([20_000, 1_000, 1_000]);
  expect(await closed(300, [300, 0])).toEqual([300, 300]);
  expect(await closed(0, [1, 0])).toEqual([0, 0]);
});
