import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { EVENT_NAMES, SUBJECT_OF } from "../../../src/contracts/events.js";
import { PostServiceService } from "../../../src/gen/avion/posts.js";
import { UserServiceService } from "../../../src/gen/avion/users.js";

const DOCUMENT = readFileSync("docs/federation.md", "utf8");
const METHODS = new Set<string>([
  ...Object.values(PostServiceService).map(({ path }) => path),
  ...Object.values(UserServiceService).map(({ path }) => path),
]);

test("every method that the document about federation names exists", () => {
  const named = [...DOCUMENT.matchAll(/`((?:Post|User)Service)\.(\w+)`/g)].map(
    ([, service, method]) => `/avion.${service}/${method}`,
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !METHODS.has(path))).toEqual([]);
});

test("every subject that the document about federation names is that of an event beside it", () => {
  const rows = DOCUMENT.split("\n").filter((line) => /\((`\w+\.\w+`(, )?)+\)/.test(line));
  expect(rows.length).toBeGreaterThan(3);
  for (const row of rows) {
    const events = EVENT_NAMES.filter((name) => row.includes(`\`${name}\``));
    const subjects = [...row.matchAll(/`((?:drops|graph)\.\w+)`/g)].map(([, subject]) => subject);
    expect(subjects).toEqual(events.map((name) => SUBJECT_OF[name]));
  }
});
