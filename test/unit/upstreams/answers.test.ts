import { expect, test } from "@jest/globals";
import { type Drop, Visibility } from "../../../src/gen/avion/posts.js";
import { AppError } from "../../../src/kernel/errors.js";
import { checkPage, totalOf, validUsers } from "../../../src/upstreams/answers.js";
import { takePage } from "../../../src/upstreams/drop-pages.js";
import { NAMES_NOBODY } from "../../support/world.js";

const DROP: Drop = {
  drop_id: "d1",
  user_id: "ada",
  visibility: Visibility.PUBLIC,
  created_at: 1,
  deleted: false,
  recipients: [],
  repost_of: "",
  repost_author: "",
  ...NAMES_NOBODY,
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

test("users that are no ids are left out and counted; a page of nothing else is empty", () => {
  let leftOut = 0;
  const valid = (ids: readonly string[]) => validUsers(ids, (count) => (leftOut += count));
  expect(valid(["a", "", "b", "x".repeat(129), "\ud800"])).toEqual(["a", "b"]);
  expect(leftOut).toBe(3);
  expect([valid([]), valid(["", ""])]).toEqual([[], []]);
  expect(leftOut).toBe(5);
});

const at = (created_at: number, drop_id = `d${created_at}`): Drop => ({ ...DROP, created_at, drop_id });
const idsOf = ({ page }: ReturnType<typeof takePage>) => page?.drops.map(({ drop_id }) => drop_id);

test("only an empty page, or one that says so, ends an author's drops", () => {
  expect(takePage({ drops: [], end: false }, undefined, 30).page).toEqual({ drops: [], next: undefined });
  expect(takePage({ drops: [at(9), at(8)], end: false }, undefined, 30).page?.next).toEqual({ score: 8, drop: "d8" });
  expect(takePage({ drops: [at(9), at(8)], end: true }, undefined, 30).page?.next).toBeUndefined();
});

test("pages that overlap, repeat a drop or come in another order show each drop once, and lead further down", () => {
  const below = { score: 9, drop: "d9" };
  for (const [end, isUnordered, drops] of [
    [7, false, [at(9), at(8), at(7)]],
    [8, true, [at(7), at(8), at(9)]],
    [7, false, [at(11), at(8), at(8), at(7), at(10)]],
  ] as const) {
    const taken = takePage({ drops: [...drops], end: false }, below, 5);
    expect(idsOf(taken)).toEqual(["d8", "d7"]);
    expect(taken).toMatchObject({ page: { next: { score: end, drop: `d${end}` } }, isUnordered });
  }
});

// Invariant 11.
test("a page with nothing further down is the end, unless it is as long as asked: then no position is taken", () => {
  const drops = [at(10), at(9)];
  expect(takePage({ drops, end: false }, { score: 9, drop: "d9" }, 5).page).toEqual({ drops: [], next: undefined });
  expect(faultOf(() => takePage({ drops, end: false }, { score: 9, drop: "d9" }, 2))).toBe(
    "GetDropsByUserID: the answer breaks the contract: the page below a drop leads to itself",
  );
});

const BROKEN: Partial<Drop>[] = [
  { drop_id: "" },
  { drop_id: "~floor" },
  { drop_id: "x".repeat(129) },
  { created_at: -1 },
  { created_at: Number.NaN },
  { created_at: 2 ** 53 },
  { recipients: Array(1_001).fill("u") },
];

test("drops that break the contract are left out, and the cursor stands at those that can be read", () => {
  const drops = [at(9), ...BROKEN.map((change) => ({ ...at(5), ...change })), at(7)];
  const taken = takePage({ drops, end: false }, undefined, 30);
  expect([idsOf(taken), taken.leftOut]).toEqual([["d9", "d7"], BROKEN.length]);
  expect(taken.page?.next).toEqual({ score: 7, drop: "d7" });
  const full = { ...DROP, recipients: Array(1_000).fill("u") };
  expect(idsOf(takePage({ drops: [full], end: false }, undefined, 30))).toEqual(["d1"]);
});

test("where nothing of a page can be read the cursor moves by what is left of its items", () => {
  const next = (...drops: Drop[]) => takePage({ drops, end: false }, undefined, 30);
  expect(next(at(9, "x".repeat(129)), at(8, "")).page?.next).toEqual({ score: 8, drop: "" });
  expect(next(at(2 ** 60)).page?.next).toEqual({ score: Number.MAX_SAFE_INTEGER, drop: "" });
  expect(next(at(-1, "a"), at(-2, "b"))).toEqual({ leftOut: 2, lastId: "b" });
});

// Invariant 11.
test("a page longer than any may be fails", () => {
  expect(faultOf(() => checkPage("List", "", { length: 10_000, next: "" }))).toBe("taken");
  expect(faultOf(() => checkPage("List", "", { length: 10_001, next: "" }))).toContain("10001 items");
  const drops = Array.from({ length: 10_001 }, () => DROP);
  expect(faultOf(() => takePage({ drops, end: false }, undefined, 30))).toContain("10001 items");
});

// Invariant 11.
test("a token that leads nowhere fails: a list is read to its end", () => {
  const nextOf = (asked: string, next: string) => faultOf(() => checkPage("List", asked, { length: 1, next }));
  expect([nextOf("a", "b"), nextOf("", "")]).toEqual(["taken", "taken"]);
  expect(nextOf("a", "a")).toContain("the same page again");
  expect(nextOf("a", "t".repeat(5_000))).toContain("too long");
});

// Invariant 2.
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
