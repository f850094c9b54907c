import { expect, test } from "@jest/globals";
import { withOlder } from "../../../src/timeline/shared-log.nats.js";

const entry = (drop: string, score: number) => ({ drop, score });
const names = ({ entries, floor }: ReturnType<typeof withOlder>) => [entries.map(({ drop }) => drop), floor];

/** The log has lost its beginning, and with it any drop up to the time 50. */
const logged = { entries: [entry("new", 60), entry("both", 45), entry("logged", 40)], floor: 5, wholeSince: 50 };

// Invariant 5.
test("below the time from which the log is whole, a timeline keeps what it has, and gets what the log has", () => {
  const older = { floor: 20, entries: [entry("wrong", 55), entry("kept", 48), entry("both", 45), entry("low", 20)] };
  expect(names(withOlder(logged, older, 10))).toEqual([["new", "kept", "both", "logged"], 20]);
  expect(names(withOlder(logged, older, 3))).toEqual([["new", "kept", "both"], 40]);
});

test("what a timeline holds is not needed where it reaches less far than the log", () => {
  expect(withOlder(logged, { floor: 50, entries: [entry("wrong", 55)] }, 10)).toBe(logged);
});
