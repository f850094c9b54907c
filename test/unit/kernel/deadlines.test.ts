import { expect, test } from "@jest/globals";
import { withDeadline } from "../../../src/kernel/deadlines.js";
import { codeOf } from "../../../src/kernel/errors.js";

const COUNT = 30;

test("work that is late is given up, and all other work has its result, in whatever order it ends", async () => {
  const ends: ((result: number) => void)[] = [];
  const start = (deadline: number): Promise<number> =>
    withDeadline(new Promise<number>((resolve) => ends.push(resolve)), deadline);
  const far = Date.now() + 60_000;
  // By turns: ends early, is late, ends while others are given up.
  const works = Array.from({ length: COUNT }, (_, n) => start(n % 3 === 1 ? Date.now() : far));
  const settled = works.map((work) => work.catch(codeOf));
  for (let n = 0; n < COUNT; n += 6) ends[n]?.(n);
  for (let n = COUNT - 3; n > 0; n -= 6) ends[n]?.(n);
  const late = await Promise.all(settled.filter((_, n) => n % 3 === 1));
  expect(new Set(late)).toEqual(new Set(["deadline"]));
  for (let n = 0; n < COUNT; n++) ends[n]?.(n);
  expect(await Promise.all(settled)).toEqual(works.map((_, n) => (n % 3 === 1 ? "deadline" : n)));
});

test("work that fails is rejected with its own error", async () => {
  await expect(withDeadline(Promise.reject(new Error("broken")), Date.now() + 60_000)).rejects.toThrow("broken");
});
