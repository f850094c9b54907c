import { expect, jest, test } from "@jest/globals";
import { AppError } from "../../../src/kernel/errors.js";
import { createJudge, createListReaders, Hidden } from "../../../src/state/index.js";
import { becomes } from "../../support/eventually.js";

const LATER = Number.POSITIVE_INFINITY;

test("pages of one list share an answer of the users service for a moment, and other owners and rebuilds ask", async () => {
  const asked: string[] = [];
  const readers = createListReaders(async (owner, list) => {
    asked.push(`${owner} ${list}`);
    return { member_ids: ["bob"], followed_ids: [], owner_id: owner };
  });
  await readers.readOrLast({ owner: "ada", list: "l" }, LATER);
  expect(await readers.readOrLast({ owner: "ada", list: "l" }, LATER)).toMatchObject({ isOld: false });
  await readers.readOrLast({ owner: "eve", list: "l" }, LATER);
  await readers.read({ owner: "ada", list: "l" }, LATER);
  expect(asked).toEqual(["ada l", "eve l", "ada l"]);
});

/** Readers whose questions are answered when a test says so. */
function heldReaders() {
  const answers: Array<() => void> = [];
  const readers = createListReaders(
    (owner) =>
      new Promise((resolve) => {
        answers.push(() => resolve({ member_ids: ["bob"], followed_ids: [], owner_id: owner }));
      }),
  );
  const read = (patienceMs = 30_000) => readers.readOrLast({ owner: "ada", list: "l" }, Date.now() + patienceMs);
  return { answers, read };
}

test("pages of one list share a question, which goes on when a page does not wait for it", async () => {
  const { answers, read } = heldReaders();
  await expect(read(1)).rejects.toMatchObject({ code: "deadline" });
  const pages = [read(), read()];
  expect(answers).toHaveLength(1);
  answers[0]?.();
  for (const page of pages) expect(await page).toMatchObject({ isOld: false });
  expect(await read()).toMatchObject({ isOld: false });
  expect(answers).toHaveLength(1);
});

test("a page asks again if the question that it shares was asked more than a second before it", async () => {
  let now = 0;
  const clock = jest.spyOn(performance, "now").mockImplementation(() => now);
  try {
    const { answers, read } = heldReaders();
    const first = read();
    now = 1_001;
    const second = read();
    answers[0]?.();
    await first;
    await becomes(async () => expect(answers).toHaveLength(2));
    answers[1]?.();
    expect(await second).toMatchObject({ isOld: false });
  } finally {
    clock.mockRestore();
  }
});

test("while the users service is away the last answer is used, and after a minute without the followed members", async () => {
  let now = 0;
  const clock = jest.spyOn(performance, "now").mockImplementation(() => now);
  try {
    let isAway = false;
    const readers = createListReaders(async () => {
      if (isAway) throw new AppError("unavailable", "the users service is away");
      return { member_ids: ["bob", "cat"], followed_ids: ["cat"], owner_id: "ada" };
    });
    const read = () => readers.readOrLast({ owner: "ada", list: "l" }, LATER);
    const answer = { owner: "ada", members: new Set(["bob", "cat"]), followed: new Set(["cat"]) };
    expect(await read()).toEqual({ ...answer, isOld: false });
    isAway = true;
    now = 59_999;
    expect(await read()).toEqual({ ...answer, isOld: true });
    now = 60_000;
    expect(await read()).toEqual({ ...answer, followed: new Set(), isOld: true });
    isAway = false;
    expect(await read()).toEqual({ ...answer, isOld: false });
  } finally {
    clock.mockRestore();
  }
});

test("a drop is judged by members, follows, replies and hidden users", async () => {
  const reader = { owner: "ada", members: new Set(["ada", "bob", "cat"]), followed: new Set(["cat"]) };
  const hidden = new Hidden("ada", new Map([["eve", "all"]]));
  const judge = await createJudge(reader, hidden, true)([]);
  const all = await createJudge(reader, hidden, false)([]);
  expect(judge({ author: "bob" })).toBe(true);
  expect(judge({ author: "dan" })).toBe(false);
  expect(judge({ author: "bob", forFollowers: true })).toBe(false);
  expect(judge({ author: "bob", forFollowers: "unknown" })).toBe("unknown");
  for (const author of ["cat", "ada"]) expect(judge({ author, forFollowers: true })).toBe(true);
  expect([judge({ author: "bob", parent: "dan" }), all({ author: "bob", parent: "dan" })]).toEqual([false, true]);
  for (const parent of ["ada", "cat"]) expect(judge({ author: "bob", parent })).toBe(true);
  expect(all({ author: "bob", parent: "eve" })).toBe(false);
  expect(all({ author: "bob", original: "eve", repostOf: "d" })).toBe(false);
});
