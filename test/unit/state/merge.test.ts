import { expect, test } from "@jest/globals";
import { type MergedPart, merge } from "../../../src/state/entries/merge.js";
import type { Stored } from "../../../src/state/entries/stored.js";

const range = { key: "home", direction: "older", from: undefined, count: 10 } as const;
const stored = (
  floor: number | undefined,
  ...entries: readonly (readonly [drop: string, score: number])[]
): Stored => ({
  floor,
  entries: entries.map(([drop, score]) => ({ drop, score })),
  areAlive: true,
});
const part = (key: string, of: Stored): MergedPart => ({ key, stored: of });

// Invariant 5.
test("a drop that the home and the timeline of its author hold at two times is shown once, at the smaller one", () => {
  const [home, author] = [stored(0, ["a", 30], ["b", 20]), stored(0, ["b", 25], ["a", 10])];
  const orders = [
    [home, author],
    [author, home],
  ] as const;
  for (const [first, second] of orders)
    expect(merge(range, first, [part("author", second)]).entries).toEqual([
      { drop: "b", score: 20 },
      { drop: "a", score: 10 },
    ]);
});

// Invariant 5.
test("merged timelines are complete down to the highest of their floors, and incomplete if one has none", () => {
  expect(merge(range, stored(5), [part("one", stored(7)), part("two", stored(6))])).toMatchObject({ floor: 7 });
  expect(merge(range, stored(5), [part("one", stored(undefined)), part("two", stored(6))])).toMatchObject({
    floor: undefined,
    incomplete: { keys: ["one"] },
  });
});
