import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { createMajority } from "../../../src/upstreams/faults.js";

const WINDOW_MS = 30_000;

/** A majority whose time passes when it is told to. */
function setup() {
  let time = 1_000_000;
  const majority = createMajority(() => time);
  return {
    pass: (ms: number) => {
      time += ms;
    },
    note: (ok: boolean, ...subjects: readonly string[]) => {
      for (const subject of subjects) majority.note(subject, ok);
    },
    failing: () => majority.failing(),
  };
}

const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_, i) => `${prefix}${i}`);

test("nobody asked is nobody failing", () => {
  expect(setup().failing()).toBe(false);
});

// Invariant 8.
test("one subject alone is never an outage, however often it fails", () => {
  const { note, failing, pass } = setup();
  for (let call = 0; call < 100; call++) {
    note(false, "anna");
    expect(failing()).toBe(false);
    pass(100);
  }
});

test("two subjects that fail, and none that succeeds, are an outage", () => {
  const { note, failing } = setup();
  note(false, "anna");
  expect(failing()).toBe(false);
  note(false, "arno");
  expect(failing()).toBe(true);
});

test("more must fail than succeed: half is not most", () => {
  const { note, failing } = setup();
  note(true, "s1", "s2", "s3");
  note(false, "f1", "f2", "f3");
  expect(failing()).toBe(false);
  note(false, "f4");
  expect(failing()).toBe(true);
  note(true, "s4");
  expect(failing()).toBe(false);
});

test("subjects count and not calls: one that is retried is still one, on either side", () => {
  const { note, failing } = setup();
  note(true, "s1", "s2");
  for (let retry = 0; retry < 50; retry++) note(false, "f1", "f2");
  expect(failing()).toBe(false);
  note(false, "f3");
  for (let again = 0; again < 50; again++) note(true, "s1");
  expect(failing()).toBe(true);
});

test("of one subject only the latest outcome counts", () => {
  const { note, failing } = setup();
  note(true, ...names("u", 5));
  note(false, "u0", "u1", "u2");
  expect(failing()).toBe(true);
  note(true, "u0");
  expect(failing()).toBe(false);
});

test("an outcome speaks for half a minute, and then no longer", () => {
  const { note, failing, pass } = setup();
  note(false, "anna", "arno");
  pass(WINDOW_MS);
  expect(failing()).toBe(true);
  pass(1);
  expect(failing()).toBe(false);
});

test("old successes do not speak for an upstream that fails now", () => {
  const { note, failing, pass } = setup();
  note(true, ...names("u", 10));
  pass(WINDOW_MS);
  note(false, "anna", "arno");
  expect(failing()).toBe(false);
  pass(1);
  expect(failing()).toBe(true);
});

test("each failure ages by itself: when one of two is too old, one is left, and one is no outage", () => {
  const { note, failing, pass } = setup();
  note(false, "anna");
  pass(20_000);
  note(false, "arno");
  expect(failing()).toBe(true);
  pass(10_001);
  expect(failing()).toBe(false);
  note(false, "anna");
  expect(failing()).toBe(true);
});

test("it counts the last twenty subjects and forgets earlier ones", () => {
  const { note, failing } = setup();
  note(true, ...names("s", 2_000));
  note(false, ...names("f", 10));
  expect(failing()).toBe(false);
  note(false, "one more than half of them");
  expect(failing()).toBe(true);
});

test("its verdict is that of a count of the latest outcomes, for any history", () => {
  const step = fc.record({
    subject: fc.constantFrom("a", "b", "c", "d", "e"),
    ok: fc.boolean(),
    wait: fc.constantFrom(0, 0, 1, 9_000, 15_000, 30_000, 30_001),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const { note, failing, pass } = setup();
      const latest = new Map<string, { ok: boolean; age: number }>();
      for (const { subject, ok, wait } of steps) {
        note(ok, subject);
        latest.set(subject, { ok, age: 0 });
        pass(wait);
        for (const one of latest.values()) one.age += wait;
        const known = [...latest.values()].filter(({ age }) => age <= WINDOW_MS);
        const failed = known.filter((one) => !one.ok).length;
        expect(failing()).toBe(failed >= 2 && failed > known.length - failed);
      }
    }),
  );
});
