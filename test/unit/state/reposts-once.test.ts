import { expect, test } from "@jest/globals";
import fc from "fast-check";
import type { TimelineEntry } from "../../../src/contracts/timelines.js";
import { shownAmong } from "../../../src/state/entries/reposts-once.js";
import { onceIn } from "../../support/reposts-once.js";

const drop = fc.option(fc.record({ original: fc.nat(4), author: fc.nat(5) }), { nil: undefined });

/** Newest first. An entry whose number is an original is that drop. */
const entriesOf = (drops: readonly ({ original: number; author: number } | undefined)[]): TimelineEntry[] =>
  drops.map((one, place) => ({
    ...{ score: 1_000 - place, drop: `d${drops.length - place}` },
    by: one ? { author: `u${one.author}`, original: "ada", repostOf: `d${one.original}` } : { author: "ada" },
  }));

test("entries that others cover are left out, and name who reposted, as the contract words it", () => {
  fc.assert(
    fc.property(fc.array(drop, { maxLength: 30 }), fc.nat(12), (drops, window) => {
      const entries = entriesOf(drops);
      const shown = shownAmong(entries, window).map(({ entry }) => entry);
      expect(shown.map(({ drop, repostedBy = [] }) => ({ drop, repostedBy }))).toEqual(onceIn(entries, window));
    }),
    { numRuns: 500 },
  );
});

test("names are final once three are known, or all entries in the window are", () => {
  const entries = entriesOf([
    { original: 0, author: 1 },
    { original: 0, author: 2 },
    { original: 0, author: 3 },
    { original: 9, author: 1 },
  ]);
  expect(shownAmong(entries, 3).map(({ place, isNamed }) => [place, isNamed])).toEqual([
    [0, true],
    [3, false],
  ]);
  expect(shownAmong(entries.slice(0, 2), 3).map(({ isNamed }) => isNamed)).toEqual([false]);
  expect(shownAmong(entries.slice(0, 2), 1).map(({ isNamed }) => isNamed)).toEqual([true]);
});
