import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { tagged, taggedIn } from "../../invariants.js";

const sections = readFileSync("docs/invariants.md", "utf8").split(/^## /m).slice(1);
const numbers = sections.map((section) => Number.parseInt(section, 10));

test("each invariant has a number, its reason and tests", () => {
  expect(numbers).toEqual(sections.map((_, at) => at + 1));
  expect(numbers.length).toBeGreaterThan(10);
  const shown = new Set(tagged().map(({ invariant }) => invariant));
  for (const section of sections) expect(section).toMatch(/^Why: \S/m);
  expect([...shown].sort((a, b) => a - b)).toEqual(numbers);
});

test("what is open stands in the roadmap alone", () => {
  for (const section of sections) expect(section).not.toMatch(/^Open:/m);
  const [, limits = ""] = readFileSync("docs/roadmap.md", "utf8").split("\n## Known limits\n");
  expect(limits.match(/^- /gm)?.length).toBeGreaterThan(30);
});

test("each comment that names an invariant stands above a test", () => {
  expect(tagged().length).toBeGreaterThan(400);
  expect(tagged().filter(({ title }) => title === undefined)).toEqual([]);
});

test("a comment is read with the test below it", () => {
  const code = 'test("before", f);\n// Invariants 4, 12.\ntest.each([1])(\n  "a title",\n  f);\n  // Invariant 3.\n';
  expect(taggedIn("file", code)).toEqual([
    { invariant: 4, file: "file", title: "a title" },
    { invariant: 12, file: "file", title: "a title" },
    { invariant: 3, file: "file", title: undefined },
  ]);
});
