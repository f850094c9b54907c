import { expect, test } from "@jest/globals";
import { createHotPages } from "../../../src/users/lists.js";

const kept = (generation: string, count = 1) => ({
  generation,
  page: { ids: Array.from({ length: count }, (_, n) => `${n}`), total: count },
});

test("a page is kept once it was read three times within a second", () => {
  let time = 0;
  const pages = createHotPages(() => time);
  pages.offer("slow", kept("g"));
  time += 600;
  pages.offer("slow", kept("g"));
  time += 600;
  pages.offer("slow", kept("g"));
  expect(pages.get("slow")).toBeUndefined();
  for (let n = 0; n < 3; n++) pages.offer("fast", kept("g"));
  expect(pages.get("fast")).toEqual(kept("g"));
});

test("a kept page is replaced by the last one read", () => {
  const pages = createHotPages(() => 0);
  for (let n = 0; n < 3; n++) pages.offer("page", kept("old"));
  pages.offer("page", kept("new"));
  expect(pages.get("page")?.generation).toBe("new");
});

test("all pages together are bounded by their ids", () => {
  const pages = createHotPages(() => 0);
  for (let page = 0; page < 100; page++) for (let n = 0; n < 3; n++) pages.offer(`page ${page}`, kept("g", 5_000));
  const held = Array.from({ length: 100 }, (_, page) => pages.get(`page ${page}`)).filter(Boolean);
  expect(held.length).toBeGreaterThan(10);
  expect(held.length).toBeLessThan(60);
});
