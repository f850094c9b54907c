import { expect, test } from "@jest/globals";
import {
  ACTIVITY_NAMES,
  ACTIVITY_SUBJECT_OF,
  type ActivityName,
  activityId,
  parseActivity,
  parseStoredActivity,
} from "../../../src/contracts/activity.js";
import { AppError } from "../../../src/kernel/errors.js";

const GOOD = {
  drop_reacted: { drop_id: "d1", author_id: "ada", user_id: "bob b", kind: "like", active: true, version: 3 },
  user_requested: { follower_id: "bob b", following_id: "ada", active: false, version: 4 },
} as const;
const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

function faultOf(name: ActivityName, value: object): string {
  try {
    parseActivity(name, bytes(value));
  } catch (error) {
    if (error instanceof AppError && error.code === "invalid") return error.message;
    throw error;
  }
  return "understood";
}

test.each(ACTIVITY_NAMES)("%s: the smallest payload of the contract is understood under its subject", (name) => {
  const event = { name, payload: GOOD[name] };
  expect(parseActivity(name, bytes(GOOD[name]))).toEqual(event);
  expect(parseStoredActivity(ACTIVITY_SUBJECT_OF[name], bytes(GOOD[name]))).toEqual(event);
});

test("a subject of a later version is permanently invalid", () => {
  expect(() => parseStoredActivity("activity.waved", bytes({}))).toThrow(expect.objectContaining({ code: "invalid" }));
});

test.each([
  ["drop_id", ""],
  ["author_id", 7],
  ["user_id", "x".repeat(129)],
  ["kind", "share"],
  ["active", "yes"],
  ["version", -1],
  ["created_at", "yesterday"],
] as const)("a wrong %s of drop_reacted is named", (field, value) => {
  expect(faultOf("drop_reacted", { ...GOOD.drop_reacted, [field]: value })).toMatch(new RegExp(`^${field}: `));
});

test.each([
  ["follower_id", null],
  ["following_id", undefined],
  ["active", 1],
  ["version", "1.5"],
] as const)("a wrong %s of user_requested is named", (field, value) => {
  expect(faultOf("user_requested", { ...GOOD.user_requested, [field]: value })).toMatch(new RegExp(`^${field}: `));
});

test("message ids name the key and the version", () => {
  const idOf = (name: ActivityName, change: object) =>
    activityId(parseActivity(name, bytes({ ...GOOD[name], ...change })));
  expect(idOf("drop_reacted", {})).toBe(`drop_reacted:d1:=${Buffer.from("bob b").toString("base64url")}:like:3`);
  expect(idOf("drop_reacted", { active: false, version: 4 })).toMatch(/:like:4$/);
  expect(idOf("user_requested", { follower_id: "bob" })).toBe("user_requested:bob:ada:4");
});

test("a version beyond 2^53 is kept exactly", () => {
  const text = JSON.stringify(GOOD.user_requested).replace('"version":4', '"version":9007199254740993');
  expect(parseActivity("user_requested", Buffer.from(text)).payload.version).toBe("9007199254740993");
});
