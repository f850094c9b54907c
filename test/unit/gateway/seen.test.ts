import { expect, test } from "@jest/globals";
import { Seen } from "../../../src/gateway/seen.js";

test("a key repeats only the second time", () => {
  const seen = new Seen(3);
  expect(seen.repeats("a")).toBe(false);
  expect(seen.repeats("a")).toBe(true);
});

test("it holds the newest keys and no more", () => {
  const seen = new Seen(3);
  for (const key of ["a", "b", "c", "a", "d"]) seen.repeats(key);
  expect(seen.size).toBe(3);
  expect(seen.repeats("a")).toBe(true);
  expect(seen.repeats("b")).toBe(false);
  expect(seen.size).toBe(3);
});
