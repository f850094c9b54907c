import { beforeEach, expect, test } from "@jest/globals";
import { RetentionPolicy } from "nats";
import { createReadBacklog, createReadLastAdmission, createReadLogState } from "../../src/consistency/log.nats.js";
import type { FanoutJob } from "../../src/contracts/fanout.js";
import { createQueueJobs } from "../../src/fanout/publish.nats.js";
import { natsOfFile } from "../support/nats-of-file.js";

const MINUTE = 60_000;
const bench = natsOfFile();
beforeEach(async () => {
  for (const stream of ["DROPS", "FANOUT"]) await bench.manager.streams.purge(stream);
});

const job = (drop: string, admittedAt: number): FanoutJob => ({
  ...{ action: "add", event: "drop_created", drop_id: drop, user_id: "alice", created_at: 1, generation: "g" },
  admitted_at: admittedAt,
  user_ids: ["bob"],
});

test("the backlog begins with its oldest job, wherever that stands in the queue", async () => {
  const now = Date.now();
  const queue = createQueueJobs(bench.publishAll);
  for (const [drop, age] of [
    ["first", 1],
    ["redriven", 600],
    ["last", 2],
  ] as const)
    await queue([job(drop, now - age * MINUTE)]);
  const { start } = await createReadBacklog(bench.connection)();
  expect(start).toBeLessThanOrEqual(now - 600 * MINUTE);
  expect(start).toBeGreaterThan(now - 601 * MINUTE);
});

test("without pending events the backlog begins now, and everything is acknowledged", async () => {
  const before = Date.now();
  const { start, acked } = await createReadBacklog(bench.connection)();
  expect(start).toBeGreaterThanOrEqual(before);
  expect(acked).toBe((await bench.manager.streams.info("DROPS")).state.last_seq);
});

test("an event that no consumer has acknowledged is in the backlog", async () => {
  const { seq } = await bench.publish({ subject: "drops.created", id: "one", body: Buffer.from("{}") });
  const { time } = await bench.manager.streams.getMessage("DROPS", { seq });
  expect(await createReadBacklog(bench.connection)()).toEqual({ start: time.getTime(), acked: seq - 1 });
});

test("the last admission is that of the kind of events that has waited longer; of an empty log, that of its last event", async () => {
  const read = createReadLastAdmission(bench.connection);
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
  expect((await createReadBacklog(connection)()).start).toBeLessThan(before - 599 * MINUTE);
  const message = await (await connection.jetstream().consumers.get("FANOUT", "worker")).next();
  await message?.ackAck();
  expect((await manager.streams.info("FANOUT")).state.messages).toBe(1);
  expect((await createReadBacklog(connection)()).start).toBeGreaterThanOrEqual(before);
  await manager.streams.delete("FANOUT");
  await manager.streams.add(config);
});

test("a stream that was deleted and declared again has another creation time", async () => {
  const read = createReadLogState(bench.connection);
  const before = await read();
  await bench.publish({ subject: "drops.created", id: "two", body: Buffer.from("{}") });
  expect(await read()).toEqual({ ...before, last: before.last + 1 });
  const { config } = await bench.manager.streams.info("FANOUT");
  await bench.manager.streams.delete("FANOUT");
  expect((await read()).fanout).toBe("");
  await bench.manager.streams.add(config);
  expect((await read()).fanout).not.toBe(before.fanout);
});
