import { expect, test } from "@jest/globals";
import { STREAM } from "../../src/contracts/subjects.js";
import { GetPositionsResponse, SetPositionResponse } from "../../src/gen/avion/timeline.js";
import { AppError, type ErrorCode } from "../../src/kernel/errors.js";
import { createPositionMethods } from "../../src/reads/positions.js";
import { createPositionStore } from "../../src/reads/positions.nats.js";
import type { OwnedList } from "../../src/state/index.js";
import { createReadRate } from "../../src/state/limits/read-rate.redis.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { redisOfFile } from "../support/redis-of-file.js";

const LATER = { deadline: Number.POSITIVE_INFINITY };

const redis = redisOfFile();
const nats = natsOfFile();

/** The users service, as a process asks it about the lists of a user; `fault` is its answer about a list. */
const readersOf = (fault: ReadonlyMap<string, ErrorCode>) => ({
  readOrLast: async ({ owner, list }: OwnedList) => {
    const code = fault.get(list);
    if (code !== undefined) throw new AppError(code, "list_id: a fault");
    return { owner, members: new Set<string>(), followed: new Set<string>(), isOld: false };
  },
});

function open() {
  const [erased, suspended] = [new Set<string>(), new Set<string>()];
  const told: object[] = [];
  const faults = new Map<string, ErrorCode>();
  const methods = createPositionMethods({
    positions: createPositionStore({ nats: nats.connection, publish: nats.publish }),
    erased: { among: async (users) => new Set(users.filter((user) => erased.has(user))) },
    standings: { of: (user) => (suspended.has(user) ? "suspended" : "active") },
    takeRead: createReadRate(redis.scripts),
    readers: readersOf(faults),
    notifyUser: async (_user, notification) => void told.push(notification),
  });
  const set = async (user_id: string, timeline: string, drop_id: string, version: number) =>
    SetPositionResponse.decode(await methods.setPosition({ user_id, timeline, drop_id, version }, LATER)).position;
  const all = async (user_id: string) =>
    GetPositionsResponse.decode(await methods.getPositions({ user_id })).positions.map(
      ({ timeline, drop_id, version }) => `${timeline} ${drop_id} ${version}`,
    );
  return { set, all, told, faults, erased, suspended };
}

test("a newer version moves a position; an older one is refused, and the error names the stored one", async () => {
  const { set, all, told } = open();
  expect(await set("ann", "home", "d1", 1)).toMatchObject({ timeline: "home", drop_id: "d1", version: 1 });
  await set("ann", "local", "d9", 7);
  await set("ann", "home", "d2", 5);
  const stands = { code: "conflict", message: "version: 5 stands, at the drop d2" };
  await expect(set("ann", "home", "d3", 4)).rejects.toMatchObject(stands);
  await expect(set("ann", "home", "d3", 5)).rejects.toMatchObject(stands);
  expect(await all("ann")).toEqual(["home d2 5", "local d9 7"]);
  expect(await all("nobody")).toEqual([]);
  expect(told).toEqual([
    { event: "new_position", timeline: "home", drop_id: "d1", version: 1 },
    { event: "new_position", timeline: "local", drop_id: "d9", version: 7 },
    { event: "new_position", timeline: "home", drop_id: "d2", version: 5 },
  ]);
});

test("a repetition changes nothing, and tells the user again", async () => {
  const { set, told } = open();
  const first = await set("bea", "home", "d1", 1);
  expect(await set("bea", "home", "d1", 1)).toEqual(first);
  expect(told).toHaveLength(2);
});

test.each([
  ["user_id", { user_id: "" }],
  ["timeline", { timeline: "house" }],
  ["timeline", { timeline: "list:" }],
  ["timeline", { timeline: "list:a\0b" }],
  ["timeline", { timeline: `list:${"x".repeat(129)}` }],
  ["drop_id", { drop_id: "" }],
  ["drop_id", { drop_id: "~floor" }],
  ["drop_id", { drop_id: "x".repeat(129) }],
  ["version", { version: -1 }],
])("a wrong %s is refused by its name: %j", async (field, wrong) => {
  const { user_id, timeline, drop_id, version } = {
    user_id: "cat",
    timeline: "home",
    drop_id: "d1",
    version: 1,
    ...wrong,
  };
  await expect(open().set(user_id, timeline, drop_id, version)).rejects.toMatchObject({
    code: "invalid",
    message: expect.stringMatching(new RegExp(`^${field}: `)),
  });
});

test("a position in a list is refused if the user does not have the list, or if nobody knows that for now", async () => {
  const { set, all, told, faults, erased } = open();
  for (const [code, answer] of [
    ["notfound", "the user has no such list"],
    ["invalid", "timeline: names no list"],
    ["unavailable", "list_id: a fault"],
  ] as const) {
    faults.set("theirs", code);
    await expect(set("kim", "list:theirs", "d1", 1)).rejects.toMatchObject({ code, message: answer });
  }
  expect([await all("kim"), told]).toEqual([[], []]);
  await set("kim", "list:mine", "d1", 1);
  expect(await all("kim")).toEqual(["list:mine d1 1"]);
  faults.set("theirs", "notfound");
  erased.add("kim");
  await expect(set("kim", "list:theirs", "d1", 1)).rejects.toMatchObject({ code: "gone" });
});

// Invariant 11.
test("beyond the maximum number of lists the position set longest ago is removed, and no other", async () => {
  const { set, all } = open();
  await set("dan", "home", "d1", 1);
  for (let list = 0; list < 52; list++) await set("dan", `list:${list}`, "d1", 1);
  const left = await all("dan");
  expect(left).toHaveLength(51);
  expect(left).toContain("home d1 1");
  expect(left).not.toContain("list:1 d1 1");
});

test("of positions set at the same moment the newest stands, and none of another timeline is lost", async () => {
  const [one, other] = [open(), open()];
  const versions = [1, 2, 3, 4, 5, 6];
  await Promise.allSettled([
    ...versions.map((version) => one.set("eve", "home", `d${version}`, version)),
    other.set("eve", "local", "l1", 1),
  ]);
  await one.set("eve", "global", "g1", 1);
  const left = await one.all("eve");
  expect(left.filter((position) => !position.startsWith("home"))).toEqual(["global g1 1", "local l1 1"]);
});

// Invariant 11.
test("a user who sets positions in a loop is refused for a while, and nobody else is", async () => {
  const { set } = open();
  const outcomes: string[] = [];
  // Ten more are allowed each second that the loop takes.
  for (let version = 0; version < 1_000 && outcomes.at(-1) !== "exhausted true"; version++)
    outcomes.push(
      await set("fay", "home", "d1", version).then(
        () => "set",
        ({ code, retryAfterMs }: { code: string; retryAfterMs: number }) => `${code} ${retryAfterMs > 0}`,
      ),
    );
  expect(new Set(outcomes)).toEqual(new Set(["set", "exhausted true"]));
  expect(outcomes.slice(0, 100)).not.toContain("exhausted true");
  await set("gus", "home", "d1", 1);
});

test("an erased user cannot set positions and has none, even if the erasure comes during the write", async () => {
  const { set, all, erased } = open();
  await set("hal", "home", "d1", 1);
  erased.add("hal");
  expect(await all("hal")).toEqual([]);
  await expect(set("hal", "home", "d2", 2)).rejects.toMatchObject({ code: "gone" });
  const late = createPositionMethods({
    positions: createPositionStore({ nats: nats.connection, publish: nats.publish }),
    erased: { among: async (users) => (++looks > 1 ? new Set(users) : new Set()) },
    standings: { of: () => "active" },
    takeRead: async () => 0,
    readers: readersOf(new Map()),
    notifyUser: async () => undefined,
  });
  let looks = 0;
  const request = { user_id: "ivy", timeline: "home", drop_id: "d1", version: 1 };
  await expect(late.setPosition(request, LATER)).rejects.toMatchObject({ code: "gone" });
  const info = await nats.manager.streams.info(STREAM.positions, { subjects_filter: "$KV.POSITIONS.ivy" });
  expect(info.state.subjects ?? {}).toEqual({});
});

test("a suspended user cannot set positions, and reads earlier ones", async () => {
  const { set, all, told, suspended } = open();
  await set("jim", "home", "d1", 1);
  suspended.add("jim");
  const refusal = { code: "conflict", message: "user_id: is suspended" };
  await expect(set("jim", "home", "d2", 2)).rejects.toMatchObject(refusal);
  expect(await all("jim")).toEqual(["home d1 1"]);
  expect(told).toHaveLength(1);
});
