import { beforeEach, expect, test } from "@jest/globals";
import { DAY, HOUR } from "../../src/kernel/time.js";
import { createReadSharedLog } from "../../src/reads/shared-log.nats.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { NOBODY_ERASED } from "../support/redis.js";

const nats = natsOfFile();
let ids = 0;
beforeEach(() =>
  nats.manager.streams.delete("DROPS").then(() => nats.manager.streams.add({ name: "DROPS", subjects: ["drops.*"] })),
);

const dead = new Set<string>();
const tombstonedAmong = async (drops: readonly string[]) => new Set(drops.filter((id) => dead.has(id)));
const log = () => ({ connection: nats.connection, tombstonedAmong, judgesReplies: false });
const readLog = (maxEntries: number, remoteCap?: number) =>
  createReadSharedLog({ ...log(), erased: NOBODY_ERASED, maxEntries, remoteCap });

const put = (subject: string, body: object | string) =>
  nats.publish({ subject, body: Buffer.from(typeof body === "string" ? body : JSON.stringify(body)), id: `m${ids++}` });
const drop = (drop_id: string, created_at: number, visibility = "public") => ({
  drop_id,
  user_id: "ada",
  visibility,
  created_at,
});

const ADA = { author: "ada" };

async function fill(): Promise<void> {
  await put("drops.created", drop("a", 10));
  await put("drops.created", drop("é", 20));
  await put("drops.created", drop("twice", 40));
  await put("drops.created", drop("twice", 30));
  await put("drops.created", drop("hidden", 50, "unlisted"));
  await put("drops.created", "no JSON");
  await put("drops.ap_received", { drop_id: "remote", created_at: 25 });
  await put("drops.ap_received", { drop_id: "remote, unlisted", created_at: 26, visibility: "unlisted" });
  await put("drops.ap_received", { drop_id: "remote, private", created_at: 27, visibility: "followers" });
  await put("drops.deleted", { drop_id: "a" });
}

test("the whole log yields a timeline from the start: public drops, the smaller of two times, broken messages skipped", async () => {
  await fill();
  const read = readLog(10);
  const local = [
    { drop: "twice", score: 30, by: ADA },
    { drop: "é", score: 20, by: ADA },
    { drop: "a", score: 10, by: ADA },
  ];
  expect(await read("local")).toEqual({ entries: local, floor: 0, wholeSince: 0 });
  const global = [local[0], { drop: "remote", score: 25, by: { author: "" }, remote: true }, local[1], local[2]];
  expect(await read("global")).toEqual({ entries: global, floor: 0, wholeSince: 0 });
});

test("entries that do not fit raise the floor to the first one left out", async () => {
  await fill();
  const { entries, floor, wholeSince } = await readLog(2)("local");
  expect([entries.map(({ drop: id }) => id), floor, wholeSince]).toEqual([["twice", "é"], 10, 10]);
});

test("remote drops beyond their share are left out of global, and take no room of others", async () => {
  for (const at of [10, 20, 30]) await put("drops.created", drop(`own-${at}`, at));
  for (const at of [11, 21, 31, 41, 51]) await put("drops.ap_received", { drop_id: `remote-${at}`, created_at: at });
  const of = async (maxEntries: number, remoteCap: number, name: "local" | "global" = "global") => {
    const { entries, floor, remoteFloor } = await readLog(maxEntries, remoteCap)(name);
    return [entries.map(({ drop: id }) => id), floor, remoteFloor];
  };
  dead.add("remote-41");
  const whole = ["remote-51", "remote-31", "own-30", "own-20", "own-10"];
  expect(await of(5, 2)).toEqual([whole, 0, 21]);
  expect(await of(4, 2)).toEqual([whole.slice(0, 4), 10, 21]);
  expect(await of(10, 4)).toEqual([[...whole.slice(0, 3), "remote-21", "own-20", "remote-11", "own-10"], 0, 0]);
  expect(await of(5, 2, "local")).toEqual([["own-30", "own-20", "own-10"], 0, undefined]);
  dead.clear();
});

// Invariant 5.
test("deleted drops are left out, and raise no floor", async () => {
  await fill();
  dead.add("twice");
  const { entries, floor } = await readLog(2)("local");
  dead.clear();
  expect([entries.map(({ drop: id }) => id), floor]).toEqual([["é", "a"], 0]);
});

test("an empty log is an empty timeline, complete from the start", async () => {
  expect(await readLog(5)("local")).toEqual({ entries: [], floor: 0, wholeSince: 0 });
});

// Invariant 5.
test("a log that has lost its beginning is complete only as far as it still reaches, and hides no late drop", async () => {
  await put("drops.created", drop("lost", Date.now()));
  const before = Date.now();
  await put("drops.created", drop("late", before - 2 * HOUR));
  // It is not shown, and so takes no room.
  await put("drops.created", drop("from long ago", 7));
  await nats.manager.streams.purge("DROPS", { seq: 2 });
  const read = readLog(10);
  const { floor, entries, wholeSince } = await read("local");
  expect(entries.map(({ drop: id }) => id)).toEqual(["late"]);
  // A drop admitted before the oldest that is left may be dated up to five minutes after it.
  expect(wholeSince).toBeGreaterThan(before);
  expect([floor > 0, floor < before - 7 * DAY]).toEqual([true, true]);
  await nats.manager.streams.purge("DROPS");
  const empty = await read("local");
  expect([empty.entries, empty.wholeSince > before, empty.floor < before - 7 * DAY]).toEqual([[], true, true]);
});

// Invariant 5.
test("drops have the times that fan-out gives them, also where the clock of a bridge is up to a minute ahead", async () => {
  const now = Date.now();
  const [ahead, remote] = [now + 5 * 60_000 + 30_000, now + 30_000];
  await put("drops.created", drop("ahead", ahead));
  await put("drops.ap_received", { drop_id: "remote", created_at: remote });
  const { entries } = await readLog(10)("global");
  expect(entries).toEqual([
    { drop: "ahead", score: ahead, by: ADA },
    { drop: "remote", score: remote, by: { author: "" }, remote: true },
  ]);
});

const NOW = Date.now();

/** As an audit reads it, with an upstream that lists these drops: times of the public ones. */
const readBeside = (listed: Readonly<Record<string, number | undefined>>) =>
  createReadSharedLog({
    ...{ ...log(), erased: NOBODY_ERASED, maxEntries: 10 },
    readListed: async () =>
      new Map(Object.entries(listed).map(([drop, score]) => [drop, score === undefined ? undefined : { drop, score }])),
  });

// Invariant 5.
test("beside an upstream that lists its drops, these count, whatever the log holds of them", async () => {
  await put("drops.created", drop("both", NOW - 40));
  await put("drops.created", drop("only logged", NOW - 30));
  await put("drops.created", drop("deleted", NOW - 20));
  await put("drops.ap_received", { drop_id: "remote", created_at: NOW - 10 });
  await put("drops.ap_received", { drop_id: "remote, listed", created_at: NOW - 5, visibility: "unlisted" });
  const read = readBeside({
    ...{ both: NOW - 40, "only listed": NOW - 35, deleted: undefined, hidden: undefined },
    "remote, listed": NOW - 5,
  });
  const shown = async (name: "local" | "global") => (await read(name)).entries.map(({ drop: id }) => id);
  expect(await shown("local")).toEqual(["only listed", "both"]);
  expect(await shown("global")).toEqual(["remote", "only listed", "both"]);
});

// Invariant 5.
test("what the log holds from before the time that is listed stays, unless it is listed as deleted", async () => {
  await put("drops.created", drop("long ago", 7));
  await put("drops.created", drop("long ago, deleted", 8));
  const { entries, wholeSince } = await readBeside({ "long ago, deleted": undefined })("local");
  expect(entries).toEqual([{ drop: "long ago", score: 7, by: ADA }]);
  // Nothing is known of other drops of that time.
  expect(wholeSince).toBeGreaterThan(NOW - 8 * DAY);
});

test("drops of an erased author are left out, and do not take the room of others", async () => {
  await put("drops.created", drop("kept", 10));
  for (let at = 20; at < 30; at++) await put("drops.created", { ...drop(`e${at}`, at), user_id: "eve" });
  await put("drops.ap_received", { drop_id: "nobody's", created_at: 5 });
  const erased = { among: async (users: readonly string[]) => new Set(users.filter((user) => user === "eve")) };
  const read = createReadSharedLog({ ...log(), erased, maxEntries: 2 });
  expect((await read("global")).entries.map(({ drop: id }) => id)).toEqual(["kept", "nobody's"]);
});
