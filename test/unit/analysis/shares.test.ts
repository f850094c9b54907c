import { expect, test } from "@jest/globals";
import { createShares } from "../../../src/analysis/shares.js";

test("a user alone takes half of the places, and some are left for each who comes later", () => {
  const { take } = createShares(128);
  const takeAll = (user: string): (() => void)[] => {
    const ends: (() => void)[] = [];
    for (let end = take(user); end; end = take(user)) ends.push(end);
    return ends;
  };
  const first = takeAll("ada");
  expect(first).toHaveLength(64);
  expect(["bob", "cy", "dan"].map((user) => takeAll(user).length)).toEqual([32, 16, 8]);
  for (const end of first) end();
  expect(takeAll("eve").length).toBeGreaterThan(30);
});

test("a single place may be taken by any user, one at a time", () => {
  const { take } = createShares(1);
  const end = take("ada");
  expect(take("bob")).toBeUndefined();
  end?.();
  expect(take("bob")).toBeDefined();
});
