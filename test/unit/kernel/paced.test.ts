import { expect, test } from "@jest/globals";
import { createThrottle, paced } from "../../../src/kernel/concurrency.js";

const items = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

test("it resolves once each item is processed once, in order, with bounded concurrency", async () => {
  const begun: number[] = [];
  let underWay = 0;
  let most = 0;
  await paced(items(50), { atOnce: 4 }, async (item) => {
    begun.push(item);
    most = Math.max(most, ++underWay);
    await new Promise(setImmediate);
    underWay--;
  });
  expect([begun, most, underWay]).toEqual([items(50), 4, 0]);
});

test("the first failure ends it, after what is under way", async () => {
  let underWay = 0;
  let begun = 0;
  const work = async (item: number): Promise<void> => {
    begun++;
    underWay++;
    await new Promise(setImmediate);
    underWay--;
    if (item === 3) throw new Error("three");
  };
  await expect(paced(items(100), { atOnce: 4 }, work)).rejects.toThrow("three");
  expect([underWay, begun < 20]).toEqual([0, true]);
});

test("an iterator that fails ends it, after the work in flight", async () => {
  let underWay = 0;
  function* broken() {
    yield* items(3);
    throw new Error("no more");
  }
  const work = async (): Promise<void> => {
    underWay++;
    await new Promise(setImmediate);
    underWay--;
  };
  await expect(paced(broken(), { atOnce: 4 }, work)).rejects.toThrow("no more");
  expect(underWay).toBe(0);
});

test("nothing is begun once it stops", async () => {
  const stopping = new AbortController();
  let begun = 0;
  await paced(items(100), { atOnce: 1, stopping: stopping.signal }, async () => {
    if (++begun === 5) stopping.abort();
  });
  expect(begun).toBe(5);
});

test("turns come evenly, and whoever stops does not wait for one", async () => {
  const throttle = createThrottle(100);
  const started = performance.now();
  for (let count = 0; count < 11; count++) await throttle();
  expect(performance.now() - started).toBeGreaterThanOrEqual(95);
  const heavy = createThrottle(100);
  const weighing = performance.now();
  for (let count = 0; count < 3; count++) await heavy(undefined, 5);
  expect(performance.now() - weighing).toBeGreaterThanOrEqual(95);
  const slow = createThrottle(0.001);
  await slow();
  await slow(AbortSignal.abort());
});
