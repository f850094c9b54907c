import { expect, test } from "@jest/globals";
import { z } from "zod";
import { parseEvent } from "../../../src/contracts/events.js";
import { type FanoutJob, parseJob } from "../../../src/contracts/fanout.js";
import { boundedList, understood } from "../../../src/contracts/untrusted.js";
import { codeOf, oneLine } from "../../../src/kernel/errors.js";

const bytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

function faultOf(parse: () => unknown): string {
  try {
    parse();
  } catch (error) {
    expect(codeOf(error)).toBe("invalid");
    return (error as Error).message;
  }
  return "understood";
}

const DROP = { drop_id: "d1", user_id: "ada", visibility: "direct", created_at: 1 };
const eventWith = (recipients: unknown) => faultOf(() => parseEvent("drop_created", bytes({ ...DROP, recipients }), 1));

test.each([
  ["drop_deleted", {}, "drop_id: is missing"],
  ["drop_deleted", [], "payload: must be an object"],
  ["drop_deleted", { drop_id: 1, user_id: null }, "drop_id: must be a string; user_id: must be a string"],
  ["drop_created", { ...DROP, visibility: "secret" }, "visibility: must be one of public, unlisted, followers, direct"],
  [
    "user_followed",
    { follower_id: "ada", following_id: "bob", version: -1 },
    "version: must be an integer of 0 to 9223372036854775807, as a number or a string",
  ],
  [
    "user_followed",
    { follower_id: "ada", following_id: "bob", version: 1.5 },
    "version: must be an integer of 0 to 9223372036854775807, as a number or a string",
  ],
] as const)("the faults of a payload are in plain words: %s %j", (name, payload, words) => {
  expect(faultOf(() => parseEvent(name, bytes(payload), 1))).toBe(words);
});

// Invariant 11.
test("a drop has at most 1,000 recipients, and each is an id", () => {
  const names = (count: number) => Array.from({ length: count }, (_, n) => `u${n}`);
  expect(eventWith(names(1_000))).toBe("understood");
  expect(eventWith([])).toBe("understood");
  expect(eventWith(names(1_001))).toBe("recipients: must have at most 1000 entries");
  expect(eventWith("bob")).toBe("recipients: must be a list");
  expect(eventWith(["bob", 7])).toBe("recipients.1: must be a string");
  expect(eventWith(["x".repeat(129)])).toBe("recipients.0: must have at most 128 bytes");
});

// Invariant 11.
test("the elements of a list that is too long are not looked at", () => {
  let looked = 0;
  const refuse = (): string => {
    looked += 1;
    return "wrong";
  };
  const schema = boundedList(10, refuse, { type: "string" });
  expect(schema.safeParse(Array(11).fill("")).success).toBe(false);
  expect(looked).toBe(0);
  expect(schema.safeParse(Array(10).fill("")).success).toBe(false);
  expect(looked).toBeLessThan(10);
});

// Invariant 11.
test("an error names the first faults, however many there are, and is short", () => {
  const fault = eventWith(Array(1_000).fill(""));
  expect(fault).toMatch(/^recipients\.0: must not be empty; recipients\.1: /);
  expect(fault.length).toBeLessThanOrEqual(1_024);
  expect(fault.split("; ").length).toBeLessThan(10);
});

const JOB: FanoutJob = {
  action: "add",
  event: "drop_created",
  drop_id: "d1",
  user_id: "ada",
  created_at: 1_000,
  admitted_at: 2_000,
  generation: "1:g",
  user_ids: ["bob"],
};
const jobWith = (change: object) => faultOf(() => parseJob(bytes({ ...JOB, ...change })));

// Invariant 11.
test("a job is for at most 5,000 users, and its fields are bounded", () => {
  expect(jobWith({ user_ids: Array.from({ length: 5_000 }, (_, n) => `u${n}`) })).toBe("understood");
  expect(jobWith({ user_ids: Array(5_001).fill("u") })).toBe("user_ids: must have at most 5000 entries");
  expect(jobWith({ user_ids: undefined })).toBe("user_ids: must be a list");
  expect(jobWith({ drop_id: "x".repeat(129) })).toBe("drop_id: must have at most 128 bytes");
  expect(jobWith({ drop_id: "~floor" })).toBe("drop_id: must not be ~floor");
  expect(jobWith({ user_id: "" })).toBe("user_id: must not be empty");
  for (const field of ["created_at", "admitted_at"]) {
    expect(jobWith({ [field]: 1e300 })).toMatch(new RegExp(`^${field}: `));
    expect(jobWith({ [field]: 1.5 })).toMatch(new RegExp(`^${field}: `));
  }
  expect(jobWith({ generation: "g".repeat(129) })).toMatch(/^generation: /);
});

test("the line of an error is cut before it is made fit for a header", () => {
  expect(oneLine(new Error(` a\n${"b".repeat(10_000_000)}`))).toHaveLength(1_024);
});

test.each([
  ["", "id: must not be empty"],
  ["abcd", "id: must have at most 3 characters"],
])("a text of another length is refused in words: %j", (id, fault) => {
  expect(faultOf(() => understood(z.object({ id: z.string().min(1).max(3) }), { id }))).toBe(fault);
});
