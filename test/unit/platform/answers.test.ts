import { expect, test } from "@jest/globals";
import { type Drop, Visibility } from "../../../src/gen/avion/posts.js";
import { AppError } from "../../../src/kernel/errors.js";
import { checkPage, totalOf, validDrops, validUsers } from "../../../src/platform/grpc/answers.js";

const DROP: Drop = {
  drop_id: "d1",
  user_id: "ada",
  visibility: Visibility.PUBLIC,
  created_at: 1,
  deleted: false,
  recipients: [],
};

function faultOf(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof AppError && error.code === "failed") return error.message;
    throw error;
  }
  return "taken";
}

test("users that are no ids are left out; a page of nothing else fails", () => {
  expect(validUsers("List", ["a", "", "b", "x".repeat(129), "\ud800"])).toEqual(["a", "b"]);
  expect(validUsers("List", [])).toEqual([]);
  expect(faultOf(() => validUsers("List", ["", ""]))).toBe(
    "List: the answer breaks the contract: every item is invalid",
  );
});

test("a page of drops that leads to itself fails: its author's drops would never end", () => {
  const page = [{ ...DROP, drop_id: "d2" }, DROP];
  expect(faultOf(() => validDrops("Drops", page, "d1"))).toBe(
    "Drops: the answer breaks the contract: the page below a drop leads to itself",
  );
  for (const below of ["", "d3"]) expect(validDrops("Drops", page, below)).toEqual(page);
  expect(validDrops("Drops", [], "d1")).toEqual([]);
});

test("drops that break the contract are left out", () => {
  const broken: Partial<Drop>[] = [
    { drop_id: "" },
    { drop_id: "~floor" },
    { created_at: -1 },
    { created_at: Number.NaN },
    { recipients: Array(1_001).fill("u") },
  ];
  const kept = validDrops("Drops", [DROP, ...broken.map((change) => ({ ...DROP, ...change }))], "");
  expect(kept).toEqual([DROP]);
  expect(validDrops("Drops", [{ ...DROP, recipients: Array(1_000).fill("u") }], "")).toHaveLength(1);
});

test("a page longer than any may be fails", () => {
  expect(faultOf(() => checkPage("List", "", { length: 10_000, next: "" }))).toBe("taken");
  expect(faultOf(() => checkPage("List", "", { length: 10_001, next: "" }))).toContain("10001 items");
  expect(faultOf(() => validUsers("List", Array(10_001).fill("u")))).toContain("10001 items");
});

test("a token that leads nowhere fails: a list is read to its end", () => {
  const nextOf = (asked: string, next: string) => faultOf(() => checkPage("List", asked, { length: 1, next }));
  expect([nextOf("a", "b"), nextOf("", "")]).toEqual(["taken", "taken"]);
  expect(nextOf("a", "a")).toContain("the same page again");
  expect(nextOf("a", "t".repeat(5_000))).toContain("too long");
});

test.each([
  [5, 2, "next", 5],
  [2, 2, "", 2],
  [0, 2, "next", undefined],
  [2, 2, "next", undefined],
  [1, 2, "", undefined],
  [-1, 0, "", undefined],
])("a total of %d beside a page of %d and the token %j is known as %p", (total, length, next, known) => {
  expect(totalOf(total, { length, next })).toBe(known);
});
