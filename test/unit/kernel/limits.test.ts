import { expect, test } from "@jest/globals";
import { createBoundedQueue } from "../../../src/kernel/concurrency.js";
import { AppError } from "../../../src/kernel/errors.js";

/** Work that ends when it is told to. */
function controlled() {
  const order: string[] = [];
  const ends = new Map<string, () => void>();
  const work = (name: string) => () => {
    order.push(name);
    return new Promise<string>((resolve) => ends.set(name, () => resolve(name)));
  };
  const end = async (name: string): Promise<void> => {
    ends.get(name)?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { order, work, end };
}

test("work is done in the order it was asked for, a few pieces at a time", async () => {
  const { order, work, end } = controlled();
  const enqueue = createBoundedQueue({ atOnce: 2, waiting: 10 });
  const all = ["a", "b", "c", "d"].map((name) => enqueue(work(name)));
  await end("none");
  expect(order).toEqual(["a", "b"]);
  await end("b");
  expect(order).toEqual(["a", "b", "c"]);
  await end("a");
  await end("c");
  await end("d");
  expect(await Promise.all(all)).toEqual(["a", "b", "c", "d"]);
});

// Invariant 11.
test("a full queue refuses further work at once, and accepts it again later", async () => {
  const { work, end } = controlled();
  const enqueue = createBoundedQueue({ atOnce: 1, waiting: 1 });
  const [first, second] = [enqueue(work("a")), enqueue(work("b"))];
  await end("none");
  await expect(enqueue(work("c"))).rejects.toMatchObject({ code: "exhausted" });
  await end("a");
  const third = enqueue(work("d"));
  await end("b");
  await end("d");
  expect(await Promise.all([first, second, third])).toEqual(["a", "b", "d"]);
});

test("a limited number of reads run, a limited number wait, and the others are refused, as the caller says", async () => {
  const enqueue = createBoundedQueue({ atOnce: 2, waiting: 3, refusal: () => new AppError("unavailable", "too much") });
  let running = 0;
  let most = 0;
  const ends: (() => void)[] = [];
  const work = async (): Promise<void> => {
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => ends.push(resolve));
    running -= 1;
  };
  const begun = Array.from({ length: 2 }, () => enqueue(work));
  await Promise.resolve();
  const waiting = Array.from({ length: 3 }, () => enqueue(work));
  await expect(enqueue(work)).rejects.toMatchObject({ code: "unavailable" });
  while (ends.length > 0) {
    ends.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all([...begun, ...waiting]);
  expect(most).toBe(2);
});

test("work that fails makes room for the next", async () => {
  const enqueue = createBoundedQueue({ atOnce: 1, waiting: 1 });
  await expect(enqueue(() => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
  expect(await enqueue(async () => "done")).toBe("done");
});

// Invariant 11.
test("one owner takes half of the places, and no more than half of those that wait", async () => {
  const { order, work, end } = controlled();
  const enqueue = createBoundedQueue({ atOnce: 4, waiting: 6 });
  const own = ["a", "b", "c", "d"].map((name) => enqueue(work(name), "ann"));
  const other = enqueue(work("other"), "bob");
  await end("none");
  expect(order).toEqual(["a", "b", "other"]);
  own.push(enqueue(work("e"), "ann"), enqueue(work("f"), "ann"));
  await expect(enqueue(work("g"), "ann")).rejects.toMatchObject({ code: "exhausted" });
  for (const name of ["a", "b", "c", "d", "e", "f", "other"]) await end(name);
  expect(await Promise.all([...own, other])).toEqual(["a", "b", "c", "d", "e", "f", "other"]);
});
