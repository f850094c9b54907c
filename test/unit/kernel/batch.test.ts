import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { AppError } from "../../../src/kernel/errors.js";
import { createBatch } from "../../../src/kernel/sharing.js";
import { eventually } from "../../support/eventually.js";

interface Run {
  readonly items: readonly number[];
  end(error?: Error): void;
}

/** Runs that end when they are told to. */
function controlled(max: number, lateMs?: number) {
  const runs: Run[] = [];
  const batch = createBatch<number, number>(
    max,
    (items) =>
      new Promise((resolve, reject) => {
        runs.push({ items, end: (error) => (error ? reject(error) : resolve(items.map((item) => 10 * item))) });
      }),
    lateMs,
  );
  return { runs, batch, items: () => runs.map(({ items }) => items) };
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("items asked for together, or while a batch runs, are run together, up to the maximum", async () => {
  const { runs, batch, items } = controlled(3);
  const first = [1, 2].map(batch);
  await settle();
  const others = [3, 4, 5, 6].map(batch);
  await settle();
  expect(items()).toEqual([[1, 2]]);
  runs[0]?.end();
  expect(await Promise.all(first)).toEqual([10, 20]);
  await settle();
  runs[1]?.end();
  await settle();
  await settle();
  runs[2]?.end();
  expect(await Promise.all(others)).toEqual([30, 40, 50, 60]);
  expect(items()).toEqual([[1, 2], [3, 4, 5], [6]]);
});

test("a batch that fails is run item by item; while a server is unavailable it fails as a whole", async () => {
  const { runs, batch, items } = controlled(3);
  const asked = [1, 2].map(batch);
  await settle();
  runs[0]?.end(new Error("one of them"));
  await settle();
  runs[1]?.end(new Error("its own"));
  runs[2]?.end();
  await expect(asked[0]).rejects.toThrow("its own");
  expect(await asked[1]).toBe(20);
  expect(items()).toEqual([[1, 2], [1], [2]]);
  const others = [3, 4].map(batch);
  await settle();
  runs[3]?.end(new AppError("unavailable", "no server"));
  for (const other of others) await expect(other).rejects.toThrow("no server");
});

test("the next batch starts beside a late run, up to four; when one of them ends, the next starts", async () => {
  const { runs, batch, items } = controlled(1, 1);
  const asked = [1, 2, 3, 4, 5].map(batch);
  await eventually(() => runs.length === 4, "four runs are late");
  expect(items()).toEqual([[1], [2], [3], [4]]);
  runs[2]?.end();
  expect(await asked[2]).toBe(30);
  await eventually(() => runs.length === 5, "the last one runs");
  for (const { end } of runs) end();
  expect(await Promise.all(asked)).toEqual([10, 20, 30, 40, 50]);
});

test("after a late run has ended, batches run one after the other again", async () => {
  const { runs, batch, items } = controlled(2, 50);
  const late = batch(1);
  await settle();
  const others = [2, 3].map(batch);
  await eventually(() => runs.length === 2, "the first run is late");
  const last = batch(4);
  runs[0]?.end();
  await late;
  await settle();
  expect(items()).toEqual([[1], [2, 3]]);
  runs[1]?.end();
  await eventually(() => runs.length === 3, "the last one runs");
  runs[2]?.end();
  expect(await Promise.all([...others, last])).toEqual([20, 30, 40]);
});

test("each item is run, once or alone after a failed batch, whatever is asked for and fails", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.record({ bad: fc.boolean(), waits: fc.nat(3) }), { maxLength: 40 }),
      fc.integer({ min: 1, max: 5 }),
      async (all, max) => {
        const done: number[] = [];
        const batch = createBatch<number, number>(max, async (items) => {
          await settle();
          if (items.some((item) => all[item]?.bad)) throw new Error("bad");
          done.push(...items);
          return items;
        });
        const outcomes = await Promise.allSettled(
          all.map(async ({ waits }, item) => {
            for (let turn = 0; turn < waits; turn++) await settle();
            return batch(item);
          }),
        );
        for (const [item, outcome] of outcomes.entries())
          expect(outcome).toMatchObject(all[item]?.bad ? { status: "rejected" } : { status: "fulfilled", value: item });
        expect(done.sort((a, b) => a - b)).toEqual([...all.keys()].filter((item) => !all[item]?.bad));
      },
    ),
    { numRuns: 50 },
  );
});
