import { expect, test } from "@jest/globals";
import { createBounded } from "../../../src/users/bounded.js";

test("a limited number of reads run, a limited number wait, and the others are refused", async () => {
  const bounded = createBounded({ atOnce: 2, waiting: 3 });
  let running = 0;
  let most = 0;
  const ends: (() => void)[] = [];
  const work = async (): Promise<void> => {
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => ends.push(resolve));
    running -= 1;
  };
  const begun = Array.from({ length: 2 }, () => bounded(work));
  await Promise.resolve();
  const waiting = Array.from({ length: 3 }, () => bounded(work));
  await expect(bounded(work)).rejects.toMatchObject({ code: "unavailable" });
  while (ends.length > 0) {
    ends.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all([...begun, ...waiting]);
  expect(most).toBe(2);
});
