import { beforeEach, expect, test } from "@jest/globals";
import { RetentionPolicy } from "nats";
import { EventLog } from "../../src/consistency/log.nats.js";
import { Looks } from "../../src/consistency/looks.js";
import type { FanoutJob } from "../../src/contracts/fanout.js";
import { createQueueJobs } from "../../src/fanout/publish.nats.js";
import { createReadWaiting, createWaiting } from "../../src/state/messages/waiting.redis.js";
import { deliveryOf } from "../support/deliveries.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { redisOfFile } from "../support/redis-of-file.js";

const MINUTE = 60_000;
const redis = redisOfFile();
const bench = natsOfFile();
beforeEach(async () => {
  for (const stream of ["DROPS", "FANOUT"]) await bench.manager.streams.purge(stream);
});

const job = (drop: string, admittedAt: number): FanoutJob => ({
  ...{ action: "add", event: "drop_created", drop_id: drop, user_id: "alice", created_at: 1, generation: "g" },
  admitted_at: admittedAt,
  user_ids: ["bob"],
});

// Invariant 1.
test("the backlog begins with its oldest job, wherever that stands in the queue", async () => {
  const now = Date.now();
  const queue = createQueueJobs(bench.publishAll);
  for (const [drop, age] of [
    ["first", 1],
    ["redriven", 600],
    ["last", 2],
  ] as const)
    await queue([job(drop, now - age * MINUTE)]);
  const { start } = await new EventLog(bench.connection).readBacklog();
  expect(start).toBeLessThanOrEqual(now - 600 * MINUTE);
  expect(start).toBeGreaterThan(now - 601 * MINUTE);
});

test("without pending events the backlog begins now, and everything is acknowledged", async () => {
  const before = Date.now();
  const { start, acked } = await new EventLog(bench.connection).readBacklog();
  expect(start).toBeGreaterThanOrEqual(before);
  expect(acked).toBe((await bench.manager.streams.info("DROPS")).state.last_seq);
});

test("an event that no consumer has acknowledged is in the backlog", async () => {
  const { seq } = await bench.publish({ subject: "drops.created", id: "one", body: Buffer.from("{}") });
  const { time } = await bench.manager.streams.getMessage("DROPS", { seq });
  expect(await new EventLog(bench.connection).readBacklog()).toEqual({ start: time.getTime(), acked: seq - 1 });
});

// Invariant 5.
test("events that wait for a single user stand apart from the backlog where nothing else is under way", async () => {
  const { connection, manager, publish } = bench;
  const [waiting, readWaiting] = [createWaiting(redis.scripts), createReadWaiting(redis.scripts)];
  const read = new EventLog(connection, readWaiting).readUnapplied;
  const admit = async (drop_id: string) => {
    const body = Buffer.from(JSON.stringify({ drop_id, user_id: "anna", visibility: "public", created_at: 1 }));
    const { seq } = await publish({ subject: "drops.created", id: `waits ${drop_id}`, body });
    return { seq, time: (await manager.streams.getMessage("DROPS", { seq })).time.getTime(), body };
  };
  const [first, second] = [await admit("a"), await admit("b")];
  const planner = await connection.jetstream().consumers.get("DROPS", "planner");
  const pulled = [await planner.next(), await planner.next()];
  expect(pulled.map((message) => message?.seq)).toEqual([first.seq, second.seq]);
  const delivery = deliveryOf(first);
  await waiting.note(delivery, MINUTE);
  pulled[0]?.nak(MINUTE);
  const noted = { consumer: "planner", seq: first.seq, drop: "a", affected: { kind: "author", user: "anna" } };
  const all = { start: first.time, acked: first.seq - 1 };
  expect(await read()).toMatchObject({ ...all, waiting: [noted] });
  await pulled[1]?.ackAck();
  const { start, ...rest } = await read();
  expect(start).toBeGreaterThanOrEqual(second.time);
  expect(rest).toMatchObject({ acked: second.seq, waiting: [noted] });
  const third = await admit("c");
  expect(await read()).toMatchObject({ start: third.time, acked: second.seq, waiting: [noted] });
  expect(await new EventLog(connection).readBacklog()).toEqual(all);
  // It is handled again, and the others are not told from it any more.
  await waiting.remove(delivery);
  expect(await read()).toEqual({ ...all, waiting: [] });
});

// Invariant 5.
test("events that wait stand apart also while others are always under way, once those that were delivered before are old enough", async () => {
  const { connection, manager, publish } = bench;
  const readWaiting = createReadWaiting(redis.scripts);
  const admit = async (drop_id: string) => {
    const body = Buffer.from(JSON.stringify({ drop_id, user_id: "anna", visibility: "public", created_at: 1 }));
    const { seq } = await publish({ subject: "drops.created", id: `steady ${drop_id}`, body });
    return { seq, time: (await manager.streams.getMessage("DROPS", { seq })).time.getTime(), body };
  };
  const planner = await connection.jetstream().consumers.get("DROPS", "planner");
  const first = await admit("a");
  const message = await planner.next();
  await createWaiting(redis.scripts).note(deliveryOf(first), MINUTE);
  const second = await admit("b");
  const underWay = await planner.next();
  const patient = new EventLog(connection, readWaiting);
  const read = new EventLog(connection, readWaiting, new Looks(0)).readUnapplied;
  expect(await read()).toMatchObject({ start: first.time, acked: first.seq - 1 });
  await patient.readUnapplied();
  const third = await admit("c");
  const next = await planner.next();
  await underWay?.ackAck();
  expect(await read()).toMatchObject({ start: third.time, acked: second.seq, waiting: [{ seq: first.seq }] });
  expect(await patient.readUnapplied()).toMatchObject({ start: first.time, acked: first.seq - 1 });
  for (const one of [message, next]) await one?.ackAck();
  expect(await read()).toMatchObject({ acked: third.seq, waiting: [] });
});

// Invariant 5.
test("what was noted for an earlier consumer, or is long overdue, does not stand apart", async () => {
  const [waiting, readWaiting] = [createWaiting(redis.scripts), createReadWaiting(redis.scripts)];
  const body = Buffer.from(JSON.stringify({ drop_id: "a", user_id: "anna", visibility: "public", created_at: 1 }));
  await waiting.note(deliveryOf({ seq: 1, body }), MINUTE);
  await waiting.note(deliveryOf({ seq: 2, body }), -MINUTE);
  expect((await readWaiting()).map(({ seq }) => seq)).toEqual([1]);
  expect(await redis.raw.hlen("timeline:x:waiting")).toBe(1);
  const { seq } = await bench.publish({ subject: "drops.created", id: "earlier", body });
  const planner = await bench.connection.jetstream().consumers.get("DROPS", "planner");
  const message = await planner.next();
  const earlier = { consumer: "planner", seq, at: 0 };
  expect((await new EventLog(bench.connection, async () => [earlier]).readUnapplied()).waiting).toEqual([]);
  await message?.ackAck();
});

// Invariant 5.
test("the last admission is that of the kind of events that has waited longer; of an empty log, that of its last event", async () => {
  const read = new EventLog(bench.connection).readLastAdmission;
  const admit = async (subject: string, id: string): Promise<number> => {
    const { seq } = await bench.publish({ subject, id, body: Buffer.from("{}") });
    return (await bench.manager.streams.getMessage("DROPS", { seq })).time.getTime();
  };
  const created = await admit("drops.created", "last 1");
  expect(await read()).toBe(created);
  const followed = await admit("graph.followed", "last 2");
  expect(await read()).toBe(created);
  const deleted = await admit("drops.deleted", "last 3");
  expect([followed <= deleted, await read()]).toEqual([true, followed]);
  await bench.manager.streams.purge("DROPS");
  expect(await read()).toBe(deleted);
});

test("jobs that are acknowledged and still in the queue, as a killed server may keep them, are not in the backlog", async () => {
  const { connection, manager } = bench;
  const { config } = await manager.streams.info("FANOUT");
  const consumers = await manager.consumers.list("FANOUT").next();
  await manager.streams.delete("FANOUT");
  await manager.streams.add({ ...config, retention: RetentionPolicy.Limits });
  for (const consumer of consumers) await manager.consumers.add("FANOUT", consumer.config);
  const before = Date.now();
  await createQueueJobs(bench.publishAll)([job("done", before - 600 * MINUTE)]);
  expect((await new EventLog(connection).readBacklog()).start).toBeLessThan(before - 599 * MINUTE);
  const message = await (await connection.jetstream().consumers.get("FANOUT", "worker")).next();
  await message?.ackAck();
  expect((await manager.streams.info("FANOUT")).state.messages).toBe(1);
  expect((await new EventLog(connection).readBacklog()).start).toBeGreaterThanOrEqual(before);
  await manager.streams.delete("FANOUT");
  await manager.streams.add(config);
});

test("a stream that was deleted and declared again has another creation time", async () => {
  const read = new EventLog(bench.connection).readLogState;
  const before = await read();
  await bench.publish({ subject: "drops.created", id: "two", body: Buffer.from("{}") });
  expect(await read()).toEqual({ ...before, last: before.last + 1 });
  const { config } = await bench.manager.streams.info("FANOUT");
  await bench.manager.streams.delete("FANOUT");
  expect((await read()).fanout).toBe("");
  await bench.manager.streams.add(config);
  expect((await read()).fanout).not.toBe(before.fanout);
});

test("a log that is younger than its process, and never had an event, has missed nothing", async () => {
  const { manager, connection } = bench;
  const { config } = await manager.streams.info("DROPS");
  await manager.streams.delete("DROPS");
  await manager.streams.add(config);
  expect(await new EventLog(connection).readLastAdmission()).toBeUndefined();
});
