import { expect, test } from "@jest/globals";
import { lostByRestore } from "../../../../src/consistency/restored/lost-by-restore.js";

/** A sample in the order of admission: "+" for a drop that the upstream knows, "-" for one that it does not. */
const sampleOf = (looks: string) =>
  Array.from(looks, (look, at) => ({
    item: { drop: `d${at}`, author: `author-${at % 3}`, createdAt: at },
    known: look === "+",
  }));

// Invariant 5.
test.each([
  ["the newest drops are unknown", "+++++-----", 5],
  ["people have gone on since the restore", "++++----++++++", 4],
  ["drops of the time of the backup were admitted in another order", `+++++-+${"-".repeat(20)}`, 21],
])("%s: a restore", (_, looks, lost) => {
  expect(lostByRestore(sampleOf(looks), ({ author }) => author)).toHaveLength(lost);
});

// Invariant 5.
test.each([
  ["everything is known", "++++++++"],
  ["there is nothing", ""],
  ["two drops were published by hand", "++++++--"],
  ["no drop is known: another upstream", "----------"],
  ["the oldest are unknown: the upstream no longer keeps them", "-----+++++"],
  ["the unknown ones lie between known ones: their author is gone", "++-++-+-++-+-++-"],
])("%s: no restore", (_, looks) => {
  expect(lostByRestore(sampleOf(looks), ({ author }) => author)).toEqual([]);
});

test("what one user alone made went with the user: no restore", () => {
  expect(lostByRestore(sampleOf("+++++-----"), () => "ada")).toEqual([]);
  expect(lostByRestore(sampleOf("+++++-----"), () => undefined)).toHaveLength(5);
});
