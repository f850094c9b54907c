import { expect, test } from "@jest/globals";
import type { StreamConfig } from "nats";
import { LIVE_SHARED, SHARED_CHANGED, STREAM } from "../../src/contracts/subjects.js";
import { eventually } from "../support/eventually.js";
import {
  ask,
  connection,
  connectionWith,
  idle,
  listen,
  names,
  type Running,
  send,
  start,
  token,
} from "../support/gateway.js";
import { openUnreadStream, survivesNatsOutage } from "../support/gateway-faults.js";
import { deletedDrop, editedDrop, posted, startShared, tell, watch } from "../support/shared-streams.js";

const streams = async () => (await connection.jetstreamManager()).streams;

const eventsOf = (raw: { events: readonly { event: string; data: object }[] }): string[] =>
  raw.events.map(({ event, data }) => `${event} ${Object.values(data).join(" ")}`);

let versions = 0;

async function set({ standings }: Running, user_id: string, standing: "active" | "limited" | "suspended") {
  await standings.record([{ user_id, standing, until: 0, version: ++versions }]);
  await standings.refresh();
}

test("a drop, its edit and its deletion come to local and global, a remote drop to global only", async () => {
  const { running } = await startShared();
  const [local, global] = [await watch(running, "alice"), await watch(running, "alice", "global")];
  await posted("https://b.example/1", "bob", "global");
  await posted("d1");
  await editedDrop("d1", 2);
  await deletedDrop("d1");
  const own = ["new_drop d1 1700000000000", "drop_edited d1 2", "drop_deleted d1"];
  await eventually(() => local.events.length === 3 && global.events.length === 4, "all events");
  expect(eventsOf(local)).toEqual(own);
  expect(eventsOf(global)).toEqual(["new_drop https://b.example/1 1700000000000", ...own]);
  expect(local.events[0]?.id).toMatch(/^\d+-[0-9a-z]+-shared$/);
  expect(local.events.map(({ id }) => id)).toEqual(global.events.slice(1).map(({ id }) => id));
});

test("one subscription serves all streams, and their users do not listen", async () => {
  const { running } = await startShared();
  const before = connection.stats().inMsgs;
  const all = await Promise.all(names("u", 30).map((user) => watch(running, user)));
  await eventually(() => running.gateway.counts().streams === 30, "30 streams");
  expect(running.gateway.counts()).toMatchObject({ users: 0, registrations: 30 });
  await posted("d1");
  await Promise.all(all.map((raw) => raw.sees(["d1"])));
  expect(connection.stats().inMsgs - before).toBeLessThan(30);
  for (const raw of all) raw.close();
  await idle(running);
});

// Invariant 7.
test("a resume gets what was missed once and in order, in both timelines and from another gateway", async () => {
  const { running } = await startShared();
  const first = await watch(running, "alice");
  await posted("before");
  await first.sees(["before"]);
  await first.goes();
  const missed = names("d", 300);
  for (const drop of missed) await posted(drop);
  const { running: other } = await startShared();
  for (const gateway of [running, other])
    for (const timeline of ["local", "global"]) {
      const second = await watch(gateway, "alice", timeline, first.lastId);
      await second.sees(missed);
      expect(second.resets()).toEqual([]);
    }
  const quiet = await watch(running, "alice", "local", (await watch(other, "alice")).lastId);
  await posted("after");
  await quiet.sees(["after"]);
});

test("the heartbeat of a quiet client moves on with the stream", async () => {
  const { running } = await startShared();
  const quiet = await watch(running, "alice");
  const seq = await posted("remote", "bob", "global");
  await eventually(() => quiet.lastSeq === seq, "the position of the remote drop");
  expect(quiet.drops()).toEqual([]);
});

// Invariant 7.
test.each([
  ["garbage", "unknown_position"],
  ["17-mi9c3k2v-4fzyo82m", "unknown_position"],
  ["17-mi9c3k2v-shared", "stream_replaced"],
])("a Last-Event-ID of %p is answered by a reset", async (id, reason) => {
  const { running } = await startShared();
  const raw = await watch(running, "alice", "local", id);
  await eventually(() => raw.resets().length > 0, "a reset");
  expect(raw.resets()).toEqual([reason]);
  await posted("live");
  await raw.sees(["live"]);
});

// Invariant 7.
test("a position before what the stream has, or after its end, is answered by a reset", async () => {
  const { running } = await startShared();
  const first = await watch(running, "alice");
  await posted("d1");
  await first.sees(["d1"]);
  const old = first.lastId;
  await first.goes();
  await posted("d2");
  await (await streams()).purge(STREAM.shared);
  const { running: other } = await startShared();
  const late = await watch(other, "alice", "local", old);
  await eventually(() => late.resets().length > 0, "a reset");
  expect(late.resets()).toEqual(["too_old"]);
  const beyond = await watch(other, "alice", "local", old.replace(/^\d+/, "999999"));
  await eventually(() => beyond.resets().length > 0, "a reset");
  expect(beyond.resets()).toEqual(["unknown_position"]);
});

test("drops of hidden users are not shown, live and in a resume, while they are hidden", async () => {
  const { running, relations } = await startShared();
  relations.set("alice", "mallory", "all");
  const [alice, other] = [await watch(running, "alice"), await watch(running, "other")];
  const start = alice.lastId;
  await posted("m1", "mallory");
  await posted("a1", "ada");
  await relations.change("alice", "ada", "all");
  await posted("a2", "ada");
  await posted("r1", "bob,,ada");
  await relations.change("alice", "mallory", undefined);
  await posted("m2", "mallory");
  await deletedDrop("a1", { shown_in: "local", by: "ada" });
  await other.sees(["m1", "a1", "a2", "r1", "m2"]);
  await alice.sees(["a1", "m2"]);
  expect(alice.events.filter(({ event }) => event === "drop_deleted")).toEqual([]);
  const again = await watch(running, "alice", "local", start);
  await again.sees(["m1", "m2"]);
});

test("while it is unknown whom a viewer hides, the viewer gets nothing, and a new stream is refused", async () => {
  const { running, relations } = await startShared();
  const [alice, other] = [await watch(running, "alice"), await watch(running, "other")];
  relations.isAway = true;
  await relations.change("alice", "mallory", "all");
  await posted("m1", "mallory");
  await posted("a1", "ada");
  await other.sees(["m1", "a1"]);
  const reads = relations.reads;
  await eventually(() => relations.reads > reads + 1, "it is read again");
  expect(alice.drops()).toEqual([]);
  const url = running.url.replace("/home", "/local");
  expect((await ask(url, { authorization: `Bearer ${await token("carol")}` })).response.statusCode).toBe(503);
  relations.isAway = false;
  await alice.sees(["a1"]);
});

test("a mute that ends by itself hides nothing afterwards", async () => {
  const { running, relations } = await startShared();
  relations.set("alice", "mallory", "all");
  relations.until = Date.now() + 400;
  const alice = await watch(running, "alice");
  await posted("m1", "mallory");
  await posted("a1", "ada");
  await alice.sees(["a1"]);
  await eventually(() => Date.now() > (relations.until ?? 0), "the end of the mute");
  relations.until = undefined;
  relations.set("alice", "mallory", undefined);
  await posted("m2", "mallory");
  await alice.sees(["a1", "m2"]);
});

test("many changes of relations read them a few times a second, and hold up nobody else", async () => {
  const { running, relations } = await startShared();
  const [alice, other] = [await watch(running, "alice"), await watch(running, "other")];
  const before = relations.reads;
  const begunAt = performance.now();
  for (let index = 0; index < 300; index++) {
    await relations.change("alice", "mallory", index % 2 === 0 ? "all" : undefined);
    await posted(`d${index}`);
  }
  await other.sees(names("d", 300));
  await alice.sees(names("d", 300));
  expect(relations.reads - before).toBeLessThan(3 + (performance.now() - begunAt) / 200);
});

test("drops of suspended and limited users are shown to themselves only, and their deletions to all", async () => {
  const { running } = await startShared();
  await set(running, "sue", "suspended");
  await set(running, "lim", "limited");
  const [alice, lim] = [await watch(running, "alice"), await watch(running, "lim")];
  await posted("s1", "sue");
  await posted("l1", "lim");
  await posted("a1", "ada");
  await alice.sees(["a1"]);
  await lim.sees(["l1", "a1"]);
  await deletedDrop("l1", { shown_in: "local", by: "lim" });
  await eventually(() => alice.events.some(({ event }) => event === "drop_deleted"), "the deletion");
  await set(running, "lim", "active");
  await posted("l2", "lim");
  await alice.sees(["a1", "l2"]);
});

test("repetitions, what follows a deletion, and changes of drops in no timeline are not sent", async () => {
  const { running } = await startShared();
  const alice = await watch(running, "alice");
  await deletedDrop("d1");
  await posted("d1");
  await editedDrop("d1", 2);
  await deletedDrop("private", { by: "ada" });
  await editedDrop("private", 2, { by: "ada" });
  await posted("d2");
  await posted("d2");
  await editedDrop("d2", 2, { by: "ada" });
  await editedDrop("d2", 2, { by: "ada" });
  await deletedDrop("d2", {});
  await tell({ nonsense: true });
  await posted("end");
  await eventually(() => alice.drops().includes("end"), "the end");
  expect(eventsOf(alice)).toEqual([
    ...["drop_deleted d1", "new_drop d2 1700000000000", "drop_edited d2 2", "drop_deleted d2"],
    "new_drop end 1700000000000",
  ]);
});

// Invariant 7.
test("a live message that core NATS loses is read from the stream", async () => {
  let lost = 0;
  const lossy = connectionWith({
    subscribe: (subject, options) =>
      connection.subscribe(subject, {
        ...options,
        callback: (error, message) => {
          if (subject === LIVE_SHARED && message.string().includes("lost")) lost++;
          else options?.callback?.(error, message);
        },
      }),
  });
  const { running } = await startShared({ nats: lossy });
  const alice = await watch(running, "alice");
  await posted("lost1");
  await posted("d2");
  await alice.sees(["lost1", "d2"]);
  await posted("lost3");
  await alice.sees(["lost1", "d2", "lost3"]);
  expect([lost, alice.resets()]).toEqual([2, []]);
});

// Invariant 7.
test("when the stream is made anew, open streams get a reset and go on", async () => {
  const { running } = await startShared();
  const alice = await watch(running, "alice");
  await posted("d1");
  await alice.sees(["d1"]);
  const manager = await streams();
  const { config } = await manager.info(STREAM.shared);
  await manager.delete(STREAM.shared);
  await manager.add(config as StreamConfig);
  await eventually(() => alice.resets().length > 0, "a reset");
  await posted("d2");
  await eventually(() => alice.drops().includes("d2"), "what comes then");
  expect(alice.resets()).toEqual(["stream_replaced"]);
});

// Invariant 11.
test("a client that reads nothing is cut off after a while, takes no memory, and holds up nobody", async () => {
  const { running } = await startShared({ limits: { stallMs: 300, maxBufferedBytes: 1_000_000_000 } });
  const other = await watch(running, "other");
  await openUnreadStream(running, "slow", "local");
  await eventually(() => running.gateway.counts().streams === 2, "two streams");
  const padding = "x".repeat(100_000);
  let count = 0;
  for (; count < 1_000 && running.gateway.counts().streams === 2; count++) {
    await posted(`d${count}${padding}`);
    await eventually(() => other.drops().length > count, "the other one keeps up");
  }
  await eventually(() => running.gateway.counts().streams === 1, "the slow one is cut off");
  expect(other.ended).toBe(false);
});

test("the limit of streams of a user counts all timelines, and a gateway without a users service has none of local", async () => {
  const { running } = await startShared({ config: { maxConnectionsPerUser: 2 } });
  await watch(running, "alice", "home");
  const local = await watch(running, "alice");
  const headers = { authorization: `Bearer ${await token("alice")}` };
  const url = running.url.replace("/home", "/global");
  expect((await ask(url, headers)).response.statusCode).toBe(429);
  await local.goes();
  await eventually(async () => (await ask(url, headers)).response.statusCode === 200, "a place is free");
  const plain = await start();
  for (let index = 0; index < 30; index++)
    expect((await ask(plain.url.replace("/home", "/local"), headers)).response.statusCode).toBe(404);
  expect(plain.gateway.counts().streams).toBe(0);
});

// Invariant 11.
test("of 1,000 streams that one account opens at once 20 are open, and others open theirs and get their events", async () => {
  const { running } = await startShared({ config: { maxConnectionsPerUser: 20 } });
  const headers = { authorization: `Bearer ${await token("alice")}` };
  const url = (index: number) => running.url.replace("/home", ["/home", "/local", "/global"][index % 3] as string);
  const asked = names("", 1_000).map((_, index) => ask(url(index), headers));
  const [home, local] = await Promise.all([listen(running, "bob"), watch(running, "bob")]);
  const statuses = (await Promise.all(asked)).map(({ response }) => response.statusCode);
  expect([200, 429].map((status) => statuses.filter((each) => each === status).length)).toEqual([20, 980]);
  expect(running.gateway.counts().streams).toBe(22);
  await Promise.all([send("bob", "home-1"), posted("local-1")]);
  await Promise.all([home.sees(["home-1"]), local.sees(["local-1"])]);
});

// Invariant 7.
test("after an outage of NATS the changes stored meanwhile arrive, in order", async () => {
  await survivesNatsOutage({
    open: async (nats) => {
      const { running } = await startShared({ nats });
      return { running, raw: await watch(running, "alice") };
    },
    subject: SHARED_CHANGED,
    body: (drop_id) => ({ event: "new_drop", drop_id, created_at: 1, shown_in: "local", by: "ada" }),
  });
});
