import { expect, test } from "@jest/globals";
import { peopleFirst } from "../../../src/state/erased/erasures.js";

test("people are forgotten before the remote actors that wait, and at most so many at once", async () => {
  const inOrder = peopleFirst(2);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const work = (user: string) =>
    inOrder(user, async () => {
      begun.push(user);
      await new Promise<void>((end) => void ends.push(end));
      if (user.endsWith("2")) throw new Error("failed");
    });
  const actors = [1, 2, 3, 4].map((n) => `https://far.example/users/${n}`);
  const all = Promise.allSettled([...actors, "ada", "bob"].map(work));
  for (let ended = 0; ended < 6; ended++) {
    expect(begun.length).toBe(Math.min(6, ended + 2));
    ends.shift()?.();
    await new Promise((turn) => setImmediate(turn));
  }
  await all;
  expect(begun).toEqual([...actors.slice(0, 2), "ada", "bob", ...actors.slice(2)]);
});
