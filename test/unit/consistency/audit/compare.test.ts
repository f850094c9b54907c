import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { compare, confirmed, type Difference } from "../../../../src/consistency/audit/audit.js";
import type { TimelineEntry } from "../../../../src/contracts/timelines.js";

const NOW = 1_000_000_000;
const TIME = { now: NOW, settleMs: 30_000 };
const entries = (of: Readonly<Record<string, number>>): TimelineEntry[] =>
  Object.entries(of)
    .map(([drop, score]) => ({ drop, score }))
    .sort((a, b) => b.score - a.score);

/** Compares what is stored with what is said, each as drop and time. */
function found(
  stored: Record<string, number>,
  said: Record<string, number>,
  how: { floor?: number; bottom?: number } = {},
) {
  const home = { floor: how.floor ?? 0, entries: entries(stored) };
  return compare(home, { entries: entries(said), floor: how.bottom ?? 0 }, TIME).map(
    ({ kind, drop }) => `${kind} ${drop}`,
  );
}

test("missing, unexpected and misdated entries are found, and no others", () => {
  expect(found({ same: 5, odd: 6, moved: 7, never: 8 }, { same: 5, lacking: 4, moved: 9, odd: 6 })).toEqual([
    "wrong_score moved",
    "missing lacking",
    "unexpected never",
  ]);
});

test("entries younger than the settling time are not compared, but impossible times are", () => {
  const young = NOW - 29_999;
  expect(found({ new: young, ahead: NOW + 1 }, { fresh: young })).toEqual([]);
  expect(found({ old: NOW - 30_000 }, { lost: NOW - 30_000 })).toEqual(["missing lost", "unexpected old"]);
  expect(found({ absurd: NOW + 86_400_000 }, {})).toEqual(["unexpected absurd"]);
});

test("a misdated entry is compared by the time of the upstreams", () => {
  expect(found({ moved: NOW }, { moved: 5 })).toEqual(["wrong_score moved"]);
  expect(found({ moved: 5 }, { moved: NOW })).toEqual([]);
});

test("entries below the floor are not compared, but a wrong time that is above it is", () => {
  expect(found({ tie: 10, below: 3, a: 11 }, { a: 11 }, { floor: 10 })).toEqual([]);
  expect(found({ sunk: 3 }, { sunk: 20 }, { floor: 10 })).toEqual(["wrong_score sunk"]);
});

test("entries at or below the floor of the expected contents are not compared", () => {
  expect(found({ a: 9, b: 8, c: 7, d: 6 }, { a: 9, b: 8 }, { bottom: 8 })).toEqual([]);
  expect(found({ a: 9, never: 8.5, b: 8 }, { a: 9, b: 8 }, { bottom: 8 })).toEqual(["unexpected never"]);
});

test("remote drops beyond their share are not missing, and all others are", () => {
  const stored = { floor: 5, remoteFloor: 20, entries: entries({ kept: 18, own: 30 }) };
  const remote = entries({ out: 19, tie: 20, kept: 18, lost: 21 }).map((entry) => ({
    ...entry,
    remote: true as const,
  }));
  const said = { floor: 0, entries: [...remote, ...entries({ own: 30, gone: 10, never: 4 })] };
  const differences = compare(stored, said, TIME).map(({ kind, drop }) => `${kind} ${drop}`);
  expect(differences).toEqual(["missing lost", "missing gone"]);
});

test("a remote drop that is still held, and that the log leaves out beyond the share, is not unexpected", () => {
  const remote = entries({ out: 19, never: 21 }).map((entry) => ({ ...entry, remote: true as const }));
  const stored = { floor: 5, remoteFloor: 10, entries: [...remote, ...entries({ wrong: 12 })] };
  const differences = compare(stored, { floor: 0, remoteFloor: 20, entries: [] }, TIME);
  expect(differences.map(({ kind, drop }) => `${kind} ${drop}`)).toEqual(["unexpected never", "unexpected wrong"]);
});

test("a timeline with the expected contents has no difference, whatever the floor", () => {
  const timeline = fc.dictionary(fc.string({ minLength: 1, maxLength: 3 }), fc.integer({ min: 0, max: 20 }));
  fc.assert(
    fc.property(timeline, fc.integer({ min: 0, max: 20 }), (of, floor) => {
      const above = Object.fromEntries(Object.entries(of).filter(([, score]) => floor === 0 || score > floor));
      expect(found(of, above, { floor })).toEqual([]);
    }),
  );
});

test("a difference is confirmed only by the same difference", () => {
  const difference = (kind: Difference["kind"], drop: string): Difference => ({
    ...{ kind, drop, score: 1, expected: 1 },
  });
  const before = [difference("missing", "a"), difference("missing", "b")];
  const now = [difference("unexpected", "a"), difference("missing", "b"), difference("missing", "c")];
  expect(confirmed(before, now)).toEqual([difference("missing", "b")]);
});
