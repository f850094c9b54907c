import { expect, test } from "@jest/globals";
import { RelationKind } from "../../../src/gen/avion/users.js";
import { codeOf } from "../../../src/kernel/errors.js";
import {
  changeOf,
  endOf,
  isRelationSubject,
  relationEvent,
  type StoredRelation,
  type WantedRelation,
} from "../../../src/users/relations.js";

const NOW = 1_000_000;
const OFF = { active: false, expires_at: 0, reposts_only: false };
const MUTE: WantedRelation = {
  ...{ user_id: "a", target_id: "b", kind: RelationKind.MUTE },
  ...{ active: true, expires_at: 0, reposts_only: false },
};
const stored = (state: Partial<StoredRelation> = {}): StoredRelation => ({
  ...{ active: true, expires_at: 0, reposts_only: false, version: 7, created_at: 5 },
  ...state,
});

test("the first version is the time, and later ones rise even where the clock goes back", () => {
  expect(changeOf(undefined, MUTE, NOW)).toEqual({
    row: { ...MUTE, version: NOW, created_at: NOW, changed_at: NOW },
    adds: true,
  });
  const ahead = stored({ version: NOW + 50 });
  expect(changeOf(ahead, { ...MUTE, ...OFF }, NOW).row).toMatchObject({ active: false, version: NOW + 51 });
});

test("what stands already changes nothing, and neither does the end of what does not stand", () => {
  expect(changeOf(stored(), MUTE, NOW)).toEqual({ adds: false });
  expect(changeOf(undefined, { ...MUTE, ...OFF }, NOW)).toEqual({ adds: false });
  expect(changeOf(stored(OFF), { ...MUTE, ...OFF }, NOW)).toEqual({ adds: false });
});

test("another end, or reposts only, is a change that adds nothing and keeps the time of creation", () => {
  for (const option of [{ expires_at: NOW + 1 }, { reposts_only: true }])
    expect(changeOf(stored(), { ...MUTE, ...option }, NOW)).toEqual({
      row: { ...MUTE, ...option, version: NOW, created_at: 5, changed_at: NOW },
      adds: false,
    });
});

test("a mute counts as none from the millisecond of its end on", () => {
  const ending = stored({ expires_at: NOW });
  expect(changeOf(ending, { ...MUTE, ...OFF }, NOW - 1).row).toMatchObject({ active: false });
  expect(changeOf(ending, { ...MUTE, ...OFF }, NOW)).toEqual({ adds: false });
  expect(changeOf(ending, MUTE, NOW)).toMatchObject({ row: { created_at: NOW }, adds: true });
});

test.each([1, NOW - 1, NOW])("an end at %d is not in the future", (expires_at) => {
  let error: unknown;
  try {
    changeOf(stored(), { ...MUTE, expires_at }, NOW);
  } catch (caught) {
    error = caught;
  }
  expect([codeOf(error), (error as Error).message]).toEqual(["invalid", "expires_at: must be 0 or in the future"]);
});

test("the end of a mute is a row with a higher version and without its options", () => {
  const muted = { user_id: "a", target_id: "b", version: NOW, created_at: 5, reposts_only: true };
  expect(endOf(muted, NOW)).toEqual({ ...MUTE, ...OFF, version: NOW + 1, created_at: 5, changed_at: NOW });
});

test("an event has the name, id and fields of the contract, and one key for its pair and kind", () => {
  const row = { ...MUTE, user_id: "ann/a", expires_at: 9, reposts_only: true };
  const times = { version: 3, created_at: 1, changed_at: 2 };
  expect(relationEvent({ ...row, ...times }, "trace")).toEqual({
    owner: "=YW5uL2E",
    key: "mute:=YW5uL2E:b",
    subject: "graph.muted",
    messageId: "user_muted:=YW5uL2E:b:3",
    body: JSON.stringify({ user_id: "ann/a", target_id: "b", version: 3, expires_at: 9, reposts_only: true }),
    traceparent: "trace",
  });
  const others = [
    { ...MUTE, ...OFF },
    { ...MUTE, kind: RelationKind.BLOCK } as const,
    { ...MUTE, ...OFF, kind: RelationKind.BLOCK } as const,
  ].map((one) => relationEvent({ ...one, ...times }));
  expect(others.map(({ key, subject, messageId }) => [key, subject, messageId])).toEqual([
    ["mute:a:b", "graph.unmuted", "user_unmuted:a:b:3"],
    ["block:a:b", "graph.blocked", "user_blocked:a:b:3"],
    ["block:a:b", "graph.unblocked", "user_unblocked:a:b:3"],
  ]);
  expect(others.every(({ subject }) => isRelationSubject(subject))).toBe(true);
  expect(isRelationSubject("graph.followed")).toBe(false);
});
