import { expect, test } from "@jest/globals";
import type { ReadStretch } from "../../../../src/consistency/redis-loss/ports.js";
import { replay } from "../../../../src/consistency/redis-loss/replay.js";
import type { Delivery } from "../../../../src/delivery/handler.js";
import { deliveryOf } from "../../../support/core-delivery.js";

/** A log in memory, of so many events; says how many were handed out. */
function logOf(count: number): { read: ReadStretch; handed: () => number } {
  let handed = 0;
  const read: ReadStretch = async (_, take) => {
    for (let seq = 1; seq <= count; seq++) {
      handed++;
      if (!(await take(deliveryOf({ seq })))) return;
    }
  };
  return { read, handed: () => handed };
}

test("every event is applied once, many at a time, and all are done when it resolves", async () => {
  const applied: number[] = [];
  let underWay = 0;
  let most = 0;
  const apply = async ({ seq }: Delivery): Promise<void> => {
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
    applied.push(seq);
  };
  const done: number[] = [];
  const events = await replay(
    { readStretch: logOf(200).read, apply },
    { from: 0 },
    { progress: (count) => done.push(count) },
  );
  expect([events, applied.length, new Set(applied).size, underWay]).toEqual([200, 200, 200, 0]);
  expect([most > 1, most <= 32, done.at(-1)]).toEqual([true, true, 200]);
});

test("the first failure ends it, after what is under way, and is told", async () => {
  const { read, handed } = logOf(10_000);
  let underWay = 0;
  const apply = async ({ seq }: Delivery): Promise<void> => {
    underWay++;
    await new Promise(setImmediate);
    underWay--;
    if (seq === 7) throw new Error("seven");
  };
  await expect(replay({ readStretch: read, apply }, { from: 0 })).rejects.toThrow("seven");
  expect([underWay, handed() < 200]).toEqual([0, true]);
});

test("it stops when the process does", async () => {
  const { read, handed } = logOf(10_000);
  const stopping = new AbortController();
  await replay(
    { readStretch: read, apply: async ({ seq }) => void (seq === 5 && stopping.abort()) },
    { from: 0 },
    { stopping: stopping.signal },
  );
  expect(handed()).toBeLessThan(100);
});
