import { readdirSync } from "node:fs";
import { beforeEach, expect, test } from "@jest/globals";
import { type ConsumerInfo, headers as newHeaders, RetentionPolicy, type StoredMsg } from "nats";
import { eventOfSubject } from "../../src/contracts/events.js";
import type { Delivery } from "../../src/delivery/handler.js";
import { AppError, codeOf } from "../../src/kernel/errors.js";
import { createMaxDeliveriesHandler } from "../../src/operators/dead-letters/max-deliveries.nats.js";
import { maxDeliveriesHandler } from "../../src/roles/consumers.js";
import { contextWith, deliveryOf } from "../support/deliveries.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";

const bench = natsOfFile();
beforeEach(async () => {
  for (const stream of ["DROPS", "FANOUT", "DLQ", "ADVISORIES"]) await bench.manager.streams.purge(stream);
});

const handlerOn = (store: (deadLetter: Parameters<typeof bench.publish>[0]) => Promise<unknown> = bench.publish) =>
  createMaxDeliveriesHandler({
    nats: bench.connection,
    storeDeadLetter: store,
    eventOf: ({ stream, subject }) => (stream === "FANOUT" ? "fanout_job" : eventOfSubject(subject)),
    version: "1.2.3",
  });

const advisory = (fields: object, time = Date.now()): Delivery =>
  deliveryOf({ stream: "ADVISORIES", consumer: "backstop", json: fields, time });
const count = async (stream: string) => (await bench.manager.streams.info(stream)).state.messages;

/** Lets a consumer be handed a message more often than it may. */
async function exhaust(stream: string, consumer: string, subject: string): Promise<number> {
  const before: ConsumerInfo = await bench.manager.consumers.info(stream, consumer);
  await bench.manager.consumers.update(stream, consumer, { max_deliver: 2 });
  const hdrs = newHeaders();
  hdrs.set("traceparent", "00-1-2-03");
  const { seq } = await bench.connection
    .jetstream()
    .publish(subject, '{"drop_id":"d1"}', { headers: hdrs, msgID: `given-up:${consumer}:${subject}` });
  const source = await bench.connection.jetstream().consumers.get(stream, consumer);
  for (let time = 0; time < 3; time++) (await source.next({ expires: 1_000 }))?.nak();
  await bench.manager.consumers.update(stream, consumer, { max_deliver: before.config.max_deliver ?? 1_000 });
  return seq;
}

// Invariant 1.
test("what the server gives up is captured, dead-lettered once, and taken off the work queue", async () => {
  const seq = await exhaust("FANOUT", "worker", "fanout.job.add");
  await eventually(async () => (await count("ADVISORIES")) === 1, "the advisory is captured");
  const stored = await bench.manager.streams.getMessage("ADVISORIES", { last_by_subj: "$JS.EVENT.>" });
  const handler = handlerOn();
  const delivery = deliveryOf({ stream: "ADVISORIES", body: stored.data, time: stored.time.getTime() });
  await handler(delivery, contextWith());
  await handler(delivery, contextWith());
  expect([await count("DLQ"), await count("FANOUT")]).toEqual([1, 0]);
  const deadLetter = await bench.manager.streams.getMessage("DLQ", { last_by_subj: "dlq.>" });
  expect([deadLetter.subject, deadLetter.string()]).toEqual(["dlq.exhausted.fanout_job", '{"drop_id":"d1"}']);
  const header = (name: string) => deadLetter.header.get(name);
  expect(["Dlq-Stream", "Dlq-Stream-Seq", "Dlq-Consumer", "Dlq-Msg-Id", "traceparent"].map(header)).toEqual([
    "FANOUT",
    String(seq),
    "worker",
    "given-up:worker:fanout.job.add",
    "00-1-2-03",
  ]);
  expect(header("Dlq-Error")).toMatch(/NATS gave up after \d+ deliveries/);
});

/** A message each declared consumer is handed, by the subjects it filters, or by its stream, and what its dead letter is called. */
const MESSAGE_FOR: Readonly<Record<string, readonly [subject: string, event: string]>> = {
  "drops.>": ["drops.deleted", "drop_deleted"],
  "graph.>": ["graph.followed", "user_followed"],
  "graph.erased": ["graph.erased", "user_erased"],
  "edges.calm.>": ["edges.calm.bob", "edge_changed"],
  "edges.hot.>": ["edges.hot.bob", "edge_changed"],
  "engagement.>": ["engagement.changed", "engagement_changed"],
  "fanout.job.>": ["fanout.job.remove", "fanout_job"],
  "fanout.rest.>": ["fanout.rest.1", "fanout_job"],
  "fanout.edges.>": ["fanout.edges.1", "fanout_job"],
  "fanout.notifications.>": ["fanout.notifications.1", "fanout_job"],
  "checks.publication": ["checks.publication", "fanout_completed"],
  "events.timeline.requested": ["events.timeline.requested", "analysis_requested"],
  "events.timeline.completed": ["events.timeline.completed", "timeline_completed"],
  ACTIVITY: ["activity.reacted", "drop_reacted"],
  DROPS: ["drops.deleted", "drop_deleted"],
  ADVISORIES: ["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.FANOUT.none", "advisory"],
};
const DECLARED = readdirSync("nats/consumers").map((file) => file.split(".", 2) as [stream: string, consumer: string]);

// Invariant 10.
test.each(DECLARED)(
  "what exceeds max_deliver of %s.%s is dead-lettered once",
  async (stream, consumer) => {
    await bench.manager.streams.purge(stream);
    const { config } = await bench.manager.consumers.info(stream, consumer);
    const [subject, event] = MESSAGE_FOR[config.filter_subject ?? stream] as readonly [string, string];
    const seq = await exhaust(stream, consumer, subject);
    const last_by_subj = `$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.${stream}.${consumer}`;
    const captured = () => bench.manager.streams.getMessage("ADVISORIES", { last_by_subj }).catch(() => undefined);
    await eventually(async () => (await captured()) !== undefined, "the advisory is captured");
    const handler = maxDeliveriesHandler({ nats: bench.connection, storeDeadLetter: bench.publish });
    const { data: body, time } = (await captured()) as StoredMsg;
    const delivery = deliveryOf({ stream: "ADVISORIES", body, time: time.getTime() });
    await handler(delivery, contextWith());
    await handler(delivery, contextWith());
    expect(await count("DLQ")).toBe(1);
    const deadLetter = await bench.manager.streams.getMessage("DLQ", { last_by_subj: "dlq.>" });
    expect(deadLetter.subject).toBe(`dlq.exhausted.${event}`);
    expect([deadLetter.header.get("Dlq-Stream"), deadLetter.header.get("Dlq-Stream-Seq")]).toEqual([
      stream,
      String(seq),
    ]);
    const { retention } = (await bench.manager.streams.info(stream)).config;
    if (retention === RetentionPolicy.Workqueue) expect(await count(stream)).toBe(0);
  },
  30_000,
);

test("a dead-lettered event stays in the log, so that a replay finds it", async () => {
  const seq = await exhaust("DROPS", "planner", "drops.created");
  await handlerOn()(advisory({ stream: "DROPS", consumer: "planner", stream_seq: seq, deliveries: 2 }), contextWith());
  expect([await count("DLQ"), await count("DROPS")]).toEqual([1, 1]);
});

test("a message that is gone makes no dead letter; an advisory that is none is invalid", async () => {
  const handler = handlerOn();
  const gone = { stream: "FANOUT", consumer: "worker", stream_seq: 4_000_000, deliveries: 2 };
  await handler(advisory(gone), contextWith());
  expect(await count("DLQ")).toBe(0);
  await expect(handler(advisory({ stream: "FANOUT" }), contextWith())).rejects.toMatchObject({ code: "invalid" });
});

// Invariant 1.
test("a message stored since is another one, of a stream that was made anew: it stays on the work queue", async () => {
  const { seq } = await bench.connection.jetstream().publish("fanout.job.add", "{}");
  const { time } = await bench.manager.streams.getMessage("FANOUT", { seq });
  const given = { stream: "FANOUT", consumer: "worker", stream_seq: seq, deliveries: 1_000 };
  await handlerOn()(advisory(given, time.getTime() - 1), contextWith());
  expect([await count("DLQ"), await count("FANOUT")]).toEqual([0, 1]);
});

// Invariant 1.
test("while the DLQ takes no dead letter the message stays on the work queue", async () => {
  const { seq } = await bench.connection.jetstream().publish("fanout.job.add", "{}");
  const handler = handlerOn(() => Promise.reject(new AppError("unavailable", "full")));
  const given = { stream: "FANOUT", consumer: "worker", stream_seq: seq, deliveries: 2 };
  expect(await handler(advisory(given), contextWith()).catch(codeOf)).toBe("unavailable");
  expect(await count("FANOUT")).toBe(1);
});
