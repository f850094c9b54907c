import { expect, test } from "@jest/globals";
import fc from "fast-check";
import {
  ALL_NOTIFY_PARTS,
  MOST_NOTIFY_PARTS,
  NOTIFY_PART_COUNTS,
  notifyPartOf,
  notifyParts,
  otherPartsOf,
  toNotifyPart,
} from "../../../src/contracts/notify-parts.js";
import { notifySubject } from "../../../src/contracts/subjects.js";
import { encodeId } from "../../../src/kernel/ids.js";

const COUNTS = NOTIFY_PART_COUNTS;

const subjectOf = (user: string, count: number): string => notifyPartOf(user, count).subject(encodeId(user));

test("one part is NOTIFY with the subjects of before; several are numbered", () => {
  expect(notifyPartOf("ada", 1)).toMatchObject({ number: undefined, stream: "NOTIFY" });
  expect(subjectOf("ada", 1)).toBe("notify.user.ada");
  // FNV-1a of "ada" is 0x38390dbb.
  expect(notifyPartOf("ada", 4)).toMatchObject({ number: 3, stream: "NOTIFY-3" });
  expect(subjectOf("ada", 4)).toBe("notify.3.user.ada");
  expect(notifyParts(4).map(({ stream }) => stream)).toEqual(["NOTIFY-0", "NOTIFY-1", "NOTIFY-2", "NOTIFY-3"]);
});

test("what is published to a user goes to the part that the gateway reads, and other subjects stay", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1, maxLength: 40 }), fc.constantFrom(...COUNTS), (user, count) => {
      expect(toNotifyPart(notifySubject(user), count)).toBe(subjectOf(user, count));
      expect(notifyParts(count)).toContain(notifyPartOf(user, count));
    }),
  );
  for (const subject of ["drops.created", "dlq.poison.unknown", "notify.2.user.ada", "live.user.ada"])
    expect(toNotifyPart(subject, 4)).toBe(subject);
});

test("the other parts of a user are those under all other numbers, and never the user's own", () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1, maxLength: 40 }), fc.constantFrom(...COUNTS), (user, count) => {
      const all = COUNTS.map((each) => notifyPartOf(user, each));
      const own = notifyPartOf(user, count);
      expect(new Set([own, ...otherPartsOf(user, count)])).toEqual(new Set(all));
      expect(otherPartsOf(user, count)).not.toContain(own);
    }),
  );
});

test("a resume asks at most 17 other parts, whatever the number of parts is", () => {
  for (const count of COUNTS)
    for (let at = 0; at < 1_000; at++) expect(otherPartsOf(`user-${at}`, count).length).toBeLessThanOrEqual(17);
});

test("twice as many parts leave half of the users where they are", () => {
  const users = Array.from({ length: 4_000 }, (_, at) => `user-${at}`);
  const same = users.filter((user) => notifyPartOf(user, 4) === notifyPartOf(user, 8));
  expect(Math.abs(same.length - 2_000)).toBeLessThan(200);
});

test.each([
  ["numbers", (at: number) => String(at)],
  ["even numbers", (at: number) => `u${2 * at}`],
  ["UUIDs", (at: number) => `018f3c2e-7c1a-7${(at * 7919).toString(16).padStart(3, "0").slice(-3)}-8${at}`],
  ["ids that are encoded", (at: number) => `did:plc:${(at * 2654435761).toString(36)}`],
])("%s spread evenly over all parts", (_, idOf) => {
  const held = new Map<string, number>();
  for (let at = 0; at < 1_000 * MOST_NOTIFY_PARTS; at++) {
    const { stream } = notifyPartOf(idOf(at), MOST_NOTIFY_PARTS);
    held.set(stream, (held.get(stream) ?? 0) + 1);
  }
  expect(held.size).toBe(MOST_NOTIFY_PARTS);
  for (const count of held.values()) expect(Math.abs(count - 1_000)).toBeLessThan(250);
});

test("no two parts have the same stream or store the same subject", () => {
  expect(new Set(ALL_NOTIFY_PARTS.map(({ stream }) => stream)).size).toBe(1 + MOST_NOTIFY_PARTS);
  expect(new Set(ALL_NOTIFY_PARTS.map(({ subject }) => subject("ada"))).size).toBe(1 + MOST_NOTIFY_PARTS);
});
