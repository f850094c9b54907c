import { expect, test } from "@jest/globals";
import { RecentKeys } from "../../../src/gateway/resume.js";

test("a key repeats only the second time", () => {
  const recent = new RecentKeys(3);
  expect(recent.isRepeated("a")).toBe(false);
  expect(recent.isRepeated("a")).toBe(true);
});

// Invariant 11.
test("it holds the newest keys and no more", () => {
  const recent = new RecentKeys(3);
  for (const key of ["a", "b", "c", "a", "d"]) recent.isRepeated(key);
  expect(recent.size).toBe(3);
  expect(recent.isRepeated("a")).toBe(true);
  expect(recent.isRepeated("b")).toBe(false);
  expect(recent.size).toBe(3);
});
