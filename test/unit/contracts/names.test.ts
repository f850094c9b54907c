import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { chunkId, type FanoutJob, HOME_TIERS, jobMessageId, parseJob } from "../../../src/contracts/fanout.js";
import {
  admittedSince,
  DLQ_REASONS,
  dlqSubject,
  edgeJobSubject,
  isEdgeJob,
  isNotificationJob,
  jobSubject,
  liveSubject,
  notificationJobSubject,
  notifySubject,
} from "../../../src/contracts/subjects.js";
import { belongsHome } from "../../../src/contracts/timelines.js";
import { type Drop, Visibility } from "../../../src/gen/avion/posts.js";
import { encodeId } from "../../../src/kernel/ids.js";
import * as keys from "../../../src/state/keys.js";
import { NAMES_NOBODY } from "../../support/world.js";

const nasty = fc.string({
  unit: fc.constantFrom("a", ".", "*", ">", " ", "\r", "\n", ":", "{", "}", ",", "=", "é", "😀"),
  minLength: 1,
  maxLength: 6,
});

// Invariant 9.
test("a user is one token of a subject, and no two users share it", () => {
  fc.assert(
    fc.property(nasty, nasty, (a, b) => {
      expect(notifySubject(a)).toMatch(/^notify\.user\.[A-Za-z0-9_=-]+$/);
      expect(liveSubject(a)).toBe(notifySubject(a).replace(/^notify/, "live"));
      expect(notifySubject(a) === notifySubject(b)).toBe(a === b);
    }),
  );
  expect(notifySubject("ada")).toBe("notify.user.ada");
});

test("subjects of dead letters and jobs", () => {
  expect(DLQ_REASONS.map((reason) => dlqSubject(reason, "drop_created"))).toEqual([
    "dlq.invalid.drop_created",
    "dlq.poison.drop_created",
    "dlq.exhausted.drop_created",
    "dlq.crashed.drop_created",
    "dlq.toolarge.drop_created",
  ]);
  const minute = 29_000_000;
  const admitted = minute * 60_000 + 59_999;
  const added = { action: "add", admitted_at: admitted } as const;
  const jobs = [added, { ...added, action: "remove" }, ...HOME_TIERS.map((tier) => ({ ...added, tier }))] as const;
  expect(jobs.map(jobSubject)).toEqual([
    `fanout.job.add.${minute}`,
    `fanout.job.remove.${minute}`,
    `fanout.job.connected.${minute}`,
    `fanout.job.recent.${minute}`,
    `fanout.rest.${minute}`,
  ]);
  expect(admittedSince(jobSubject(added))).toBe(minute * 60_000);
  expect(admittedSince("fanout.job.add")).toBe(0);
  expect(edgeJobSubject(admitted)).toBe(`fanout.edges.${minute}`);
  expect(admittedSince(edgeJobSubject(admitted))).toBe(minute * 60_000);
  expect([edgeJobSubject(admitted), jobSubject(added)].map(isEdgeJob)).toEqual([true, false]);
  expect(notificationJobSubject(admitted)).toBe(`fanout.notifications.${minute}`);
  expect([notificationJobSubject(admitted), edgeJobSubject(admitted)].map(isNotificationJob)).toEqual([true, false]);
});

// Invariant 9.
test("no id reaches a key without encoding, and no two ids share a key", () => {
  const byId = [
    keys.homeKey,
    keys.generationKey,
    keys.actorKey,
    keys.deletedDropKey,
    keys.directDropKey,
    keys.connectionsOfUserKey,
  ];
  fc.assert(
    fc.property(nasty, nasty, nasty, nasty, (a, b, c, d) => {
      for (const key of byId) {
        expect(key(a)).toMatch(/^[\x21-\x7e]+$/);
        expect(key(a)).not.toMatch(/[{}*,]/);
        expect(key(a) === key(b)).toBe(a === b);
      }
      const edge = (author: string, follower: string) =>
        keys.edgesKey(author) + keys.edgeField(author) + encodeId(follower);
      expect(edge(a, b) === edge(c, d)).toBe(a === c && b === d);
      expect(keys.unfollowersKey(a) === keys.unfollowersKey(b)).toBe(a === b);
      expect(keys.unfollowersKey(a)).toMatch(/^timeline:x:unfollowers:\{\d+\}:[^{}*,\s]+$/);
      expect(keys.removalNotesKey(keys.homeKey(a))).toMatch(/^timeline:x:taken:\{timeline:home:[^{}*,\s]+\}$/);
      expect(keys.fanoutProgressKey("drop_created", a)).not.toMatch(/[{}*,\s]/);
    }),
  );
  expect(keys.homeKey("ada")).toBe("timeline:home:ada");
});

test("the key of a home tells whose it is, and no other key does", () => {
  fc.assert(
    fc.property(nasty, (id) => {
      expect(keys.userOfHomeKey(keys.homeKey(id))).toBe(id);
      expect(keys.userOfHomeKey(`x${keys.homeKey(id)}`)).toBeUndefined();
      // A key of ours is spelled in one way only.
      const spelled = `timeline:home:${id}`;
      const user = keys.userOfHomeKey(spelled);
      if (user !== undefined) expect(keys.homeKey(user)).toBe(spelled);
    }),
  );
  for (const key of ["timeline:home:", "timeline:home:=", "timeline:home:=YQ", "timeline:home:=YWRh=", keys.LOCAL_KEY])
    expect(keys.userOfHomeKey(key)).toBeUndefined();
});

test("no user owns the key of a shared timeline, of the tombstones or of a lease", () => {
  const taken: string[] = [keys.LOCAL_KEY, keys.GLOBAL_KEY, keys.TOMBSTONES_KEY, keys.REFILL_LEASE_KEY];
  fc.assert(fc.property(nasty, (id) => !taken.includes(keys.homeKey(id))));
  expect(keys.rebuildLeaseKey(keys.homeKey("ada"))).toBe("timeline:x:rebuilding:timeline:home:ada");
});

test("packed keys lose nobody and stay at 500 a call", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 1_700 }), (count) => {
      const tokens = Array.from({ length: count }, (_, index) => `u${index}`);
      const packed = keys.packKeys(tokens);
      expect(packed.flatMap((part) => part.split(","))).toEqual(tokens);
      expect(packed.every((part) => part.split(",").length <= 500)).toBe(true);
    }),
    { numRuns: 20 },
  );
});

const JOB: FanoutJob = {
  action: "add",
  event: "drop_created",
  drop_id: "d.1",
  user_id: "ada",
  created_at: 1,
  admitted_at: 2,
  generation: "g",
  user_ids: ["bob", "eve"],
};

test("a job reads back as it was written, and is refused by the field that is wrong", () => {
  expect(parseJob(Buffer.from(JSON.stringify(JOB)))).toEqual(JOB);
  for (const field of Object.keys(JOB)) {
    expect(() => parseJob(Buffer.from(JSON.stringify({ ...JOB, [field]: null })))).toThrow(new RegExp(`^${field}: `));
  }
  expect(() => parseJob(Buffer.from("no"))).toThrow(/^payload: /);
});

test("a chunk is named by whom it is for, its message by that, the event and the drop", () => {
  const id = jobMessageId(JOB);
  expect(jobMessageId({ ...JOB, generation: "other", admitted_at: 9, created_at: 9 })).toBe(id);
  const others: Partial<FanoutJob>[] = [
    { drop_id: "d.2" },
    { event: "drop_deleted" },
    { user_ids: ["bob"] },
    { user_ids: ["bob,eve"] },
    { pulled: true },
  ];
  expect(new Set([id, ...others.map((change) => jobMessageId({ ...JOB, ...change }))]).size).toBe(6);
  expect(chunkId({ user_ids: ["a", "b"] })).not.toBe(chunkId({ user_ids: ["a,b"] }));
});

test.each<[string, Partial<Drop>, string, boolean]>([
  ["public", { visibility: Visibility.PUBLIC }, "bob", true],
  ["unlisted", { visibility: Visibility.UNLISTED }, "bob", true],
  ["followers", { visibility: Visibility.FOLLOWERS }, "bob", true],
  ["direct to nobody", { visibility: Visibility.DIRECT }, "bob", false],
  ["direct to the reader", { visibility: Visibility.DIRECT, recipients: ["eve", "bob"] }, "bob", true],
  ["direct of the reader", { visibility: Visibility.DIRECT }, "ada", true],
  ["unspecified", { visibility: Visibility.UNSPECIFIED }, "bob", false],
  ["unspecified of the reader", { visibility: Visibility.UNSPECIFIED }, "ada", true],
  ["of a visibility we do not know", { visibility: 99 as Visibility }, "bob", false],
  ["deleted", { visibility: Visibility.PUBLIC, deleted: true }, "bob", false],
  ["deleted of the reader", { visibility: Visibility.PUBLIC, deleted: true }, "ada", false],
])("a drop that is %s", (_, change, reader, belongs) => {
  const drop: Drop = {
    drop_id: "d",
    user_id: "ada",
    visibility: 0,
    created_at: 1,
    deleted: false,
    recipients: [],
    repost_of: "",
    repost_author: "",
    ...NAMES_NOBODY,
    ...change,
  };
  expect(belongsHome(drop, reader)).toBe(belongs);
});
