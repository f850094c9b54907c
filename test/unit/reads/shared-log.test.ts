import { expect, test } from "@jest/globals";
import { withOlder } from "../../../src/reads/shared-log.nats.js";

const entry = (drop: string, score: number) => ({ drop, score });
const names = ({ entries, floor }: ReturnType<typeof withOlder>) => [entries.map(({ drop }) => drop), floor];

/** The log has lost its beginning, and with it any drop up to the time 50. */
const logged = { entries: [entry("new", 60), entry("both", 45), entry("logged", 40)], floor: 5, wholeSince: 50 };

// Invariant 5.
test("below the time from which the log is whole, a timeline keeps what it has, and gets what the log has", () => {
  const older = { floor: 20, entries: [entry("wrong", 55), entry("kept", 48), entry("both", 45), entry("low", 20)] };
  expect(names(withOlder(logged, older, { maxEntries: 10 }))).toEqual([["new", "kept", "both", "logged"], 20]);
  expect(names(withOlder(logged, older, { maxEntries: 3 }))).toEqual([["new", "kept", "both"], 40]);
});

test("what a timeline holds is not needed where it reaches less far than the log", () => {
  expect(withOlder(logged, { floor: 50, entries: [entry("wrong", 55)] }, { maxEntries: 10 })).toBe(logged);
});

const remote = (drop: string, score: number) => ({ ...entry(drop, score), remote: true as const });

test("the newest remote drops of the log and of the timeline together take the share", () => {
  const of = { maxEntries: 10, remoteCap: 2 };
  const whole = { ...logged, entries: [remote("r60", 60), entry("e45", 45)], remoteFloor: 0 };
  const older = {
    floor: 20,
    entries: [remote("r48", 48), entry("e46", 46), remote("r44", 44), remote("r43", 43)],
    remoteFloor: 30,
  };
  const { remoteFloor, ...rest } = withOlder(whole, older, of);
  expect([...names(rest), remoteFloor]).toEqual([["r60", "r48", "e46", "e45"], 20, 44]);
});

test("remote drops that the log has left out beyond the share do not come back from the timeline", () => {
  const whole = { ...logged, entries: [remote("r60", 60), remote("r49", 49)], remoteFloor: 46 };
  const older = { floor: 20, entries: [remote("r46", 46), entry("e40", 40)], remoteFloor: 0 };
  const { remoteFloor, ...rest } = withOlder(whole, older, { maxEntries: 10, remoteCap: 3 });
  expect([...names(rest), remoteFloor]).toEqual([["r60", "r49", "e40"], 20, 46]);
});
