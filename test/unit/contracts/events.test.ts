import { expect, test } from "@jest/globals";
import fc from "fast-check";
import {
  EVENT_NAMES,
  type EventName,
  eventOfSubject,
  messageId,
  parseEvent,
  SUBJECT_OF,
} from "../../../src/contracts/events.js";
import { MAX_AHEAD_MS } from "../../../src/contracts/times.js";
import { compareVersions } from "../../../src/contracts/versions.js";
import { AppError } from "../../../src/kernel/errors.js";

const ARRIVAL = Date.parse("2026-03-01T12:00:00Z");
const bytes = (value: unknown): Buffer => Buffer.from(typeof value === "string" ? value : JSON.stringify(value));
const parse = (name: EventName, value: unknown) => parseEvent(name, bytes(value), ARRIVAL);

function faultOf(name: EventName, value: unknown): string {
  try {
    parseEvent(name, value instanceof Uint8Array ? value : bytes(value), ARRIVAL);
  } catch (error) {
    if (error instanceof AppError && error.code === "invalid") return error.message;
    throw error;
  }
  return "understood";
}

const GOOD = {
  drop_created: { drop_id: "d1", user_id: "ada", visibility: "public", created_at: 1_000 },
  drop_deleted: { drop_id: "d1", user_id: "ada" },
  drop_edited: { drop_id: "d1", user_id: "ada", revision: 2, updated_at: 1_000 },
  ap_drop_received: { drop_id: "https://example.org/d/1", created_at: 1_000 },
  user_followed: { follower_id: "bob", following_id: "ada", version: 1 },
  user_unfollowed: { follower_id: "bob", following_id: "ada", version: 0 },
  user_blocked: { user_id: "bob", target_id: "ada", version: 1 },
  user_unblocked: { user_id: "bob", target_id: "ada", version: 2 },
  user_muted: { user_id: "bob", target_id: "ada", version: 1 },
  user_unmuted: { user_id: "bob", target_id: "ada", version: 2 },
  user_erased: { user_id: "bob", version: 1 },
  standing_changed: { user_id: "bob", standing: "limited", version: 1 },
} as const;

const DEFAULTS: Partial<Record<EventName, object>> = {
  ap_drop_received: { visibility: "public" },
  user_blocked: { expires_at: 0, reposts_only: false },
  user_unblocked: { expires_at: 0, reposts_only: false },
  user_muted: { expires_at: 0, reposts_only: false },
  user_unmuted: { expires_at: 0, reposts_only: false },
  standing_changed: { until: 0 },
};

test.each(EVENT_NAMES)("%s: the smallest payload of the contract is understood", (name) => {
  expect(parse(name, GOOD[name])).toEqual({ name, payload: { ...GOOD[name], ...DEFAULTS[name] } });
  expect(eventOfSubject(SUBJECT_OF[name])).toBe(name);
});

test("a subject that no event has is permanently invalid", () => {
  expect(() => eventOfSubject("drops.pinned")).toThrow(expect.objectContaining({ code: "invalid" }));
  expect(() => eventOfSubject("drops.pinned")).toThrow("drops.pinned");
});

const REQUIRED: readonly (readonly [EventName, readonly string[]])[] = [
  ["drop_created", ["drop_id", "user_id", "visibility", "created_at"]],
  ["drop_deleted", ["drop_id"]],
  ["drop_edited", ["drop_id", "user_id", "revision", "updated_at"]],
  ["ap_drop_received", ["drop_id", "created_at"]],
  ["user_followed", ["follower_id", "following_id", "version"]],
  ["user_unfollowed", ["follower_id", "following_id", "version"]],
  ["user_blocked", ["user_id", "target_id", "version"]],
  ["user_unblocked", ["user_id", "target_id", "version"]],
  ["user_muted", ["user_id", "target_id", "version"]],
  ["user_unmuted", ["user_id", "target_id", "version"]],
  ["user_erased", ["user_id", "version"]],
  ["standing_changed", ["standing", "version"]],
];

test.each(REQUIRED)("%s: a required field that is missing, null or of another type is named", (name, fields) => {
  for (const field of fields) {
    const { [field]: _, ...without } = GOOD[name] as Record<string, unknown>;
    expect(faultOf(name, without)).toMatch(new RegExp(`^${field}: `));
    for (const wrong of [null, true, [], {}])
      expect(faultOf(name, { ...without, [field]: wrong })).toMatch(new RegExp(`^${field}: `));
  }
  expect(
    faultOf(name, {})
      .split("; ")
      .map((fault) => fault.split(":")[0]),
  ).toEqual(fields);
});

test.each<[string, EventName, object, string]>([
  ["an empty drop id", "drop_created", { drop_id: "" }, "drop_id: must not be empty"],
  ["a drop id of 129 bytes", "drop_created", { drop_id: "x".repeat(129) }, "drop_id: must have at most 128 bytes"],
  ["a lone surrogate", "drop_deleted", { drop_id: "a\ud800" }, "drop_id: is not well-formed Unicode"],
  ["a drop called ~floor", "drop_created", { drop_id: "~floor" }, "drop_id: must not be ~floor"],
  ["a deleted drop called ~floor", "drop_deleted", { drop_id: "~floor" }, "drop_id: must not be ~floor"],
  ["an edited drop called ~floor", "drop_edited", { drop_id: "~floor" }, "drop_id: must not be ~floor"],
  ["a revision of 0", "drop_edited", { revision: 0 }, "revision: "],
  ["a revision that is no integer", "drop_edited", { revision: 1.5 }, "revision: "],
  ["a remote drop called ~floor", "ap_drop_received", { drop_id: "~floor" }, "drop_id: must not be ~floor"],
  ["an unknown visibility", "drop_created", { visibility: "friends" }, "visibility: "],
  [
    "a bad recipient",
    "drop_created",
    { visibility: "direct", recipients: ["bob", ""] },
    "recipients.1: must not be empty",
  ],
  ["an unknown visibility of a remote drop", "ap_drop_received", { visibility: "friends" }, "visibility: "],
  [
    "a bad recipient of a remote drop",
    "ap_drop_received",
    { visibility: "direct", recipients: [""] },
    "recipients.0: must not be empty",
  ],
  [
    "too many recipients of a remote drop",
    "ap_drop_received",
    { visibility: "direct", recipients: Array.from({ length: 1_001 }, (_, n) => `u${n}`) },
    "recipients: must have at most 1000",
  ],
  ["an empty author of a remote drop", "ap_drop_received", { user_id: "" }, "user_id: must not be empty"],
  ["a negative version", "user_followed", { version: -1 }, "version: "],
  ["a broken version", "user_followed", { version: 1.5 }, "version: "],
  ["a version beyond 2^63-1", "user_unfollowed", { version: "9223372036854775808" }, "version: must be an integer"],
  ["a version of other digits", "user_followed", { version: "007" }, "version: must be an integer"],
  ["a version in exponents", "user_blocked", { version: 1e21 }, "version: must be an integer"],
  ["a time in seconds", "drop_created", { created_at: 1_795_000_000 }, "created_at: is a time in seconds"],
  ["a time in microseconds", "drop_created", { created_at: 1_795_000_000e6 }, "created_at: is a time in microseconds"],
  ["a time in nanoseconds", "drop_created", { created_at: 1_795_000_000e9 }, "created_at: is a time in nanoseconds"],
  ["a remote time in seconds", "ap_drop_received", { created_at: 1_795_000_000 }, "created_at: is a time in seconds"],
  ["a remote time in microseconds", "ap_drop_received", { created_at: 1_795e12 }, "is a time in microseconds"],
  ["an end of a mute in seconds", "user_muted", { expires_at: 1_795_000_000 }, "expires_at: is a time in seconds"],
  ["an empty follower", "user_unfollowed", { follower_id: "" }, "follower_id: must not be empty"],
  ["a date of words", "drop_created", { created_at: "yesterday" }, "created_at: must be an integer"],
  ["a negative time", "ap_drop_received", { created_at: -1 }, "created_at: must be an integer"],
  ["a broken time", "drop_created", { created_at: 1.5 }, "created_at: must be an integer"],
  ["a time in a string", "drop_created", { created_at: "1000" }, "created_at: must be an integer"],
])("%s is refused by name", (_, name, change, fault) => {
  expect(faultOf(name, { ...GOOD[name], ...change })).toContain(fault);
});

test.each([
  ["no JSON", Buffer.from("{")],
  ["an empty payload", Buffer.from("")],
  ["bytes that are no UTF-8", Buffer.from([0x22, 0xff, 0xfe, 0x22])],
  ["a byte order mark of UTF-16", Buffer.from([0xff, 0xfe, 0x7b, 0x00])],
])("%s is refused as a payload", (_, payload) => {
  for (const name of EVENT_NAMES) expect(faultOf(name, payload)).toMatch(/^payload: is not JSON/);
});

test("a JSON value that is no object is refused as a payload", () => {
  for (const value of ["null", "[]", "1", '"text"']) expect(faultOf("drop_created", value)).toMatch(/^payload: /);
});

test("every fault of a payload is named at once", () => {
  const fault = faultOf("drop_created", { drop_id: "~floor", user_id: "", visibility: "x", created_at: "y" });
  expect(fault.split("; ").map((part) => part.split(":")[0])).toEqual([
    "drop_id",
    "user_id",
    "visibility",
    "created_at",
  ]);
});

test("fields nobody needs are dropped, and source fields of a wrong kind do no harm", () => {
  const noise = { text: "hello", traceparent: 7, producer: {}, seq: -1, __proto__: null };
  const event = parse("drop_created", { ...GOOD.drop_created, ...noise });
  expect(Object.fromEntries(Object.entries(event.payload).filter(([, value]) => value !== undefined))).toEqual(
    GOOD.drop_created,
  );
  const source = {
    traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    producer: "posts-1",
    seq: 9,
  };
  expect(parse("drop_deleted", { ...GOOD.drop_deleted, ...source }).payload).toEqual({
    ...GOOD.drop_deleted,
    ...source,
  });
});

test("ids at the very limit are understood", () => {
  const id = "é".repeat(64);
  expect(parse("drop_created", { ...GOOD.drop_created, drop_id: id, user_id: id }).payload).toMatchObject({
    drop_id: id,
    user_id: id,
  });
});

const timeOf = (created_at: unknown): number | string => {
  const value = { ...GOOD.ap_drop_received, created_at };
  const fault = faultOf("ap_drop_received", value);
  if (fault !== "understood") return "refused";
  return (parse("ap_drop_received", value).payload as { created_at: number }).created_at;
};

test.each<[string, number | string]>([
  ["2026-01-02T03:04:05Z", Date.UTC(2026, 0, 2, 3, 4, 5)],
  ["2026-01-02t03:04:05z", Date.UTC(2026, 0, 2, 3, 4, 5)],
  ["2026-01-02 03:04:05.5Z", Date.UTC(2026, 0, 2, 3, 4, 5, 500)],
  ["2026-01-02T03:04:05.123456789Z", Date.UTC(2026, 0, 2, 3, 4, 5, 123)],
  ["2026-01-02T03:04:05+05:30", Date.UTC(2026, 0, 1, 21, 34, 5)],
  ["2026-01-02T03:04:05-00:00", Date.UTC(2026, 0, 2, 3, 4, 5)],
  ["1970-01-01T00:00:00Z", 0],
  ["1970-01-01T01:00:00+01:00", 0],
  ["2016-12-31T23:59:60Z", Date.UTC(2017, 0, 1)],
  ["2016-12-31T18:59:60.250-05:00", Date.UTC(2017, 0, 1, 0, 0, 0, 250)],
  ["2024-02-29T00:00:00Z", Date.UTC(2024, 1, 29)],
  ["2025-02-29T00:00:00Z", "refused"],
  ["2026-04-31T00:00:00Z", "refused"],
  ["2026-13-01T00:00:00Z", "refused"],
  ["2026-00-01T00:00:00Z", "refused"],
  ["2026-01-00T00:00:00Z", "refused"],
  ["2026-01-02T24:00:00Z", "refused"],
  ["2026-01-02T03:60:00Z", "refused"],
  ["2026-01-02T03:04:61Z", "refused"],
  ["2026-01-02T03:04:05+24:00", "refused"],
  ["2026-01-02T03:04:05", "refused"],
  ["2026-01-02", "refused"],
  ["2026-01-02T03:04Z", "refused"],
  ["2026-01-02T03:04:05+0530", "refused"],
  ["1969-12-31T23:59:59Z", "refused"],
  ["0001-01-01T00:00:00Z", "refused"],
  ["2026-01-02T03:04:05Z\n", "refused"],
  ["", "refused"],
])("RFC 3339: %j is %s", (text, expected) => {
  expect(timeOf(text)).toBe(expected);
});

test("every date JavaScript prints is understood as the same ms", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: ARRIVAL }), (ms) => {
      expect(timeOf(new Date(ms).toISOString())).toBe(ms);
      // In seconds these would be times of 2001 to 2106: as ms they are of a month in 1970, and refused.
      expect(timeOf(ms)).toBe(ms >= 1e9 && ms < 4.3e9 ? "refused" : ms);
    }),
  );
  expect(Object.is(timeOf(-0), 0)).toBe(true);
});

test("a local drop may be dated up to five minutes ahead of its arrival", () => {
  const at = (created_at: number) => faultOf("drop_created", { ...GOOD.drop_created, created_at });
  expect(at(ARRIVAL + MAX_AHEAD_MS)).toBe("understood");
  expect(at(ARRIVAL + MAX_AHEAD_MS + 1)).toMatch(/^created_at: .*five minutes/);
});

test("a remote drop from the future is clamped to its arrival, others keep their time", () => {
  expect([timeOf(ARRIVAL - 1), timeOf(ARRIVAL), timeOf(ARRIVAL + 1), timeOf("9999-12-31T23:59:59Z")]).toEqual([
    ARRIVAL - 1,
    ARRIVAL,
    ARRIVAL,
    ARRIVAL,
  ]);
});

test("a standing is that of a user or of a host, whose name is in lower case and ASCII", () => {
  const { user_id: _, ...good } = GOOD.standing_changed;
  const either = "payload: must have either a user_id or a host";
  expect(faultOf("standing_changed", good)).toBe(either);
  expect(faultOf("standing_changed", { ...good, user_id: "bob", host: "spam.example" })).toBe(either);
  for (const host of ["", "a b", "a/b", "a@b", "x".repeat(300)])
    expect(faultOf("standing_changed", { ...good, host })).toBe("host: must be the name of a host");
  const event = parse("standing_changed", { ...good, host: "SPAM.Exämple" });
  expect(event.payload).toMatchObject({ host: "spam.xn--exmple-cua", until: 0 });
  expect(messageId(event)).toBe("standing_changed:@spam.xn--exmple-cua:1");
  expect(messageId(parse("standing_changed", GOOD.standing_changed))).toBe("standing_changed:bob:1");
});

test("message ids: channel and drop; follower, following and version of an edge; nothing else", () => {
  expect(messageId(parse("drop_created", { ...GOOD.drop_created, seq: 4 }))).toBe("drop_created:d1");
  expect(messageId(parse("drop_deleted", GOOD.drop_deleted))).toBe("drop_deleted:d1");
  expect(messageId(parse("drop_edited", GOOD.drop_edited))).toBe("drop_edited:d1:2");
  expect(messageId(parse("ap_drop_received", GOOD.ap_drop_received))).toMatch(/^ap_drop_received:=[\w-]+$/);
  expect(messageId(parse("user_followed", GOOD.user_followed))).toBe("user_followed:bob:ada:1");
  expect(messageId(parse("user_unfollowed", GOOD.user_unfollowed))).toBe("user_unfollowed:bob:ada:0");
});

test.each([
  "user_followed",
  "user_unfollowed",
  "user_blocked",
  "user_muted",
  "user_erased",
  "standing_changed",
] as const)("the version of %s is exact up to 2^63-1, as a number and as a string", (name) => {
  const bodyWith = (version: string) =>
    Buffer.from(JSON.stringify({ ...GOOD[name], version: 0 }).replace('"version":0', `"version" : ${version}`));
  const versionIn = (version: string) => {
    const { payload } = parseEvent(name, bodyWith(version), Date.now());
    return "version" in payload ? payload.version : undefined;
  };
  for (const digits of ["9007199254740993", "9223372036854775806", "9223372036854775807"])
    for (const form of [digits, `"${digits}"`]) expect(versionIn(form)).toBe(digits);
  for (const form of ["17", '"17"']) expect(versionIn(form)).toBe(17);
  expect(versionIn("9007199254740991")).toBe(Number.MAX_SAFE_INTEGER);
});

test("versions are compared exactly, whatever their form", () => {
  const versions = [-1, 0, 5, Number.MAX_SAFE_INTEGER, "9007199254740992", "9007199254740993", "9223372036854775807"];
  for (const [at, one] of versions.entries())
    for (const [to, other] of versions.entries())
      expect(Math.sign(compareVersions(one, other))).toBe(Math.sign(at - to));
});

test("no two edges share a message id, whatever their users are called", () => {
  const id = fc.string({ unit: fc.constantFrom("a", ":", "=", "~", "é"), minLength: 1, maxLength: 4 });
  const edge = fc.record({ follower_id: id, following_id: id, version: fc.integer({ min: 0, max: 12 }) });
  fc.assert(
    fc.property(edge, edge, (a, b) => {
      const [one, other] = [messageId(parse("user_followed", a)), messageId(parse("user_followed", b))];
      expect(one === other).toBe(
        JSON.stringify([a.follower_id, a.following_id, a.version]) ===
          JSON.stringify([b.follower_id, b.following_id, b.version]),
      );
      expect(one).toMatch(/^[\x21-\x7e]+$/);
    }),
  );
});

test("the error of a payload that is no JSON quotes nothing of it", () => {
  const say = () => parseEvent("drop_created", Buffer.from("tell-tale\u202e@x"), 0);
  expect(say).toThrow(/not JSON/);
  expect(say).not.toThrow(/tell-tale/);
});
