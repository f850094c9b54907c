import { expect, test } from "@jest/globals";
import { persistent } from "../../../../src/consistency/redis-loss/persistent.js";
import { AppError } from "../../../../src/kernel/errors.js";
import { deliveryOf } from "../../../support/core-delivery.js";

/** Applies with one outcome a call, the last for ever; says what was told. */
function scene(outcomes: readonly (Error | undefined)[]) {
  const told: string[] = [];
  const stopping = new AbortController();
  let calls = 0;
  const apply = persistent(
    async () => {
      const outcome = outcomes[Math.min(calls++, outcomes.length - 1)];
      if (outcome) throw outcome;
    },
    {
      delayMs: 1,
      stopping: stopping.signal,
      leftOut: ({ seq }, error) => void told.push(`left out ${seq}: ${(error as Error).message}`),
      waiting: (error) => told.push(`waiting: ${error}`),
    },
  );
  return { apply: () => apply(deliveryOf({ seq: 7 })), told, stopping, calls: () => calls };
}

const away = new AppError("unavailable", "away");

test("a server that is away is waited for, however often it fails", async () => {
  const { apply, told, calls } = scene([...Array.from({ length: 6 }, () => away), undefined]);
  await apply();
  expect([calls(), new Set(told)]).toEqual([7, new Set(["waiting: away"])]);
});

test("what fails by itself is tried three times, and then left out; outages between do not count", async () => {
  const failed = new Error("shard 7");
  const { apply, told, calls } = scene([failed, away, failed, away, failed]);
  await apply();
  expect([calls(), told.at(-1)]).toEqual([5, "left out 7: shard 7"]);
});

test.each(["invalid", "poison"] as const)("what is %s is left out at once", async (code) => {
  const { apply, told, calls } = scene([new AppError(code, "no")]);
  await apply();
  expect([calls(), told]).toEqual([1, ["left out 7: no"]]);
});

test("who is stopped while waiting says that it is not applied", async () => {
  const { apply, stopping } = scene([away]);
  const applying = apply();
  stopping.abort();
  await expect(applying).rejects.toThrow("away");
});

test("where nobody waits, what is away is thrown at once; what fails by itself is still left out", async () => {
  const leftOut: string[] = [];
  const failing = (error: Error) =>
    persistent(
      async () => {
        throw error;
      },
      {
        delayMs: 1,
        stopping: new AbortController().signal,
        leftOut: async ({ seq }, _, attempts) => void leftOut.push(`${seq} after ${attempts}`),
      },
    )(deliveryOf({ seq: 7 }));
  await expect(failing(away)).rejects.toThrow("away");
  expect(leftOut).toEqual([]);
  await failing(new Error("shard 7"));
  await failing(new AppError("invalid", "no"));
  expect(leftOut).toEqual(["7 after 3", "7 after 1"]);
});

test("what cannot be left out either is not dealt with", async () => {
  const applying = persistent(
    async () => {
      throw new AppError("poison", "no");
    },
    { stopping: new AbortController().signal, leftOut: () => Promise.reject(new Error("no DLQ")) },
  );
  await expect(applying(deliveryOf())).rejects.toThrow("no DLQ");
});
