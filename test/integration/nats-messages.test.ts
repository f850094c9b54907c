import { once } from "node:events";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { nanos } from "nats";
import type { Context, Delivery, DeliveryOutcome } from "../../src/delivery/handler.js";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { type ConsumeOptions, type Consuming, consume } from "../../src/platform/nats/consume/consume.js";
import { readTopology } from "../../src/platform/nats/declared.js";
import { type LogEntry, logEntries } from "../../src/platform/nats/read-log.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";

const bench = natsOfFile();
const running: Consuming[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close(100)));
});
beforeEach(async () => {
  const { consumers } = await readTopology();
  await bench.manager.streams.purge("DROPS");
  const planner = consumers.find(({ config }) => config.durable_name === "planner");
  await bench.manager.consumers.delete("DROPS", "planner").catch(() => false);
  await bench.manager.consumers.add("DROPS", planner?.config ?? {});
});

let ids = 0;
const publish = (text: string, subject = "drops.created", id = `m${ids++}`) =>
  bench.publish({ subject, body: Buffer.from(text), id });
const textOf = ({ body }: { readonly body: Uint8Array }) => Buffer.from(body).toString();
const state = () => bench.manager.consumers.info("DROPS", "planner");

type Process = (delivery: Delivery, context: Context) => Promise<DeliveryOutcome>;
function start(process: Process, concurrency = 8, more: Partial<ConsumeOptions> = {}): Consuming {
  const consuming = consume(bench.connection, {
    stream: "DROPS",
    consumer: "planner",
    ackWaitMs: 15_000,
    concurrency,
    process,
    log: silent,
    ...more,
  });
  running.push(consuming);
  return consuming;
}

/** A place where handlings wait until the test lets them end. */
function gate() {
  const begun: string[] = [];
  const ends: ((outcome: DeliveryOutcome) => void)[] = [];
  const process: Process = (delivery) => {
    begun.push(textOf(delivery));
    return new Promise((resolve) => ends.push(resolve));
  };
  return { begun, ends, process };
}

// Invariant 2.
test("a message is acked when its outcome says so, and not a moment before", async () => {
  const { begun, ends, process } = gate();
  start(process);
  await publish("one");
  await eventually(() => begun.length === 1, "it is in hand");
  expect(await state()).toMatchObject({ num_ack_pending: 1, ack_floor: { consumer_seq: 0 } });
  ends[0]?.({ kind: "ack" });
  await eventually(async () => (await state()).num_ack_pending === 0, "it is acked");
  expect((await state()).ack_floor.consumer_seq).toBe(1);
});

test("a delivery carries what the stream knows of it", async () => {
  const seen: Delivery[] = [];
  const before = Date.now();
  const { seq } = await bench.publish({
    subject: "drops.deleted",
    body: Buffer.from("x"),
    id: "with headers",
    headers: { traceparent: "00-1" },
  });
  start(async (delivery) => {
    seen.push(delivery);
    return { kind: "ack" };
  });
  await eventually(() => seen.length === 1, "it came");
  const delivery = seen[0] as Delivery;
  expect(delivery).toMatchObject({
    stream: "DROPS",
    consumer: "planner",
    seq,
    subject: "drops.deleted",
    deliveries: 1,
  });
  expect(Math.abs(delivery.time - before)).toBeLessThan(5_000);
  expect(delivery.headers.get("traceparent")).toBe("00-1");
  expect(delivery.headers.get("Nats-Msg-Id")).toBe("with headers");
  expect(delivery.headers.get("absent")).toBeUndefined();
  expect([...delivery.headers.entries()]).toContainEqual(["traceparent", "00-1"]);
});

test("a retry comes again after its delay and not before; a process that throws counts as one", async () => {
  const times: number[] = [];
  const said: string[] = [];
  const watch = bench.connection.subscribe("$JS.ACK.>", { callback: (_, { data }) => said.push(String(data)) });
  const outcomes: (() => DeliveryOutcome)[] = [
    () => ({ kind: "retry", delayMs: 400 }),
    () => {
      throw new Error("a bug of ours");
    },
    () => ({ kind: "release" }),
    () => ({ kind: "ack" }),
  ];
  start(async ({ deliveries }) => {
    times.push(Date.now());
    return (outcomes[deliveries - 1] as () => DeliveryOutcome)();
  });
  await publish("again");
  await eventually(async () => times.length === 4 && (await state()).num_ack_pending === 0, "the fourth time is acked");
  const [first, second, third, fourth] = times as [number, number, number, number];
  expect(second - first).toBeGreaterThanOrEqual(380);
  expect(third - second).toBeGreaterThanOrEqual(900);
  expect(fourth).toBeGreaterThanOrEqual(third);
  // A release asks for no delay at all.
  const answers = said.map((answer) => answer.slice(0, 4).trim());
  expect([answers, said[2]]).toEqual([["-NAK", "-NAK", "-NAK", "+ACK"], "-NAK"]);
  watch.unsubscribe();
});

// Invariant 11.
test("no more than `concurrency` are handled at once, and no more than as many again are taken", async () => {
  const { begun, ends, process } = gate();
  for (let count = 0; count < 40; count++) await publish(`${count}`);
  start(process, 4);
  await eventually(async () => (await state()).num_ack_pending >= 4, "it pulls");
  await eventually(() => begun.length === 4, "four are in hand");
  const seenBefore = begun.length;
  expect((await state()).num_ack_pending).toBeLessThanOrEqual(8);
  ends.shift()?.({ kind: "ack" });
  await eventually(() => begun.length === seenBefore + 1, "the next one comes");
  for (; ends.length > 0 || begun.length < 40; await new Promise(setImmediate)) ends.shift()?.({ kind: "ack" });
  await eventually(async () => (await state()).num_ack_pending === 0, "all are acked");
  expect([...begun].sort((a, b) => Number(a) - Number(b))).toEqual(
    Array.from({ length: 40 }, (_, count) => `${count}`),
  );
});

// Invariant 11.
test("what a batch leaves is handled by itself, no more than `alone` at once, and handed back by a close", async () => {
  const { begun, ends, process } = gate();
  for (const text of ["a", "b", "c", "d", "e"]) await publish(text);
  const batch = { messages: 8, process: async (deliveries: readonly Delivery[]) => deliveries };
  const consuming = start(process, 8, { alone: 2, batch });
  await eventually(async () => begun.length === 2 && (await state()).num_ack_pending === 5, "all are in hand");
  ends.shift()?.({ kind: "ack" });
  await eventually(() => begun.length === 3, "the next one has its turn");
  const closing = consuming.close(3_000);
  for (const end of ends) end({ kind: "ack" });
  await closing;
  const after = new Set<string>();
  start(async (delivery) => {
    after.add(textOf(delivery));
    return { kind: "ack" };
  });
  await eventually(() => after.size === 2, "another process has the two others");
  expect([begun, [...after].sort()]).toEqual([
    ["a", "b", "c"],
    ["d", "e"],
  ]);
});

test("a batch that lets the next begin makes no other wait", async () => {
  const { begun, ends, process } = gate();
  const together = async ([first]: readonly Delivery[], context: Context) => {
    context.beginNext?.();
    await process(first as Delivery, context);
    return [];
  };
  start(process, 8, { batch: { messages: 8, process: together } });
  for (const text of ["a", "b", "c", "d"]) {
    await publish(text);
    await eventually(() => begun.at(-1) === text, "it has begun");
  }
  for (const end of ends) end({ kind: "ack" });
  await eventually(async () => (await state()).num_ack_pending === 0, "all are acked");
});

test("a message that comes again while it is in hand is handled once, and its latest delivery is acked", async () => {
  await bench.manager.consumers.update("DROPS", "planner", { ack_wait: nanos(300) });
  const { begun, ends, process } = gate();
  start(process);
  await publish("slow");
  await eventually(async () => (await state()).delivered.consumer_seq > 2, "it was delivered three times");
  expect(begun).toEqual(["slow"]);
  ends[0]?.({ kind: "ack" });
  await eventually(async () => (await state()).num_ack_pending === 0, "it is acked");
  await publish("next");
  await eventually(() => begun.length === 2, "the next is handled");
  ends[1]?.({ kind: "retry", delayMs: 0 });
  await eventually(() => begun.length === 3, "it is handled again");
  expect(begun).toEqual(["slow", "next", "next"]);
  ends[2]?.({ kind: "ack" });
});

test("close: what was begun is finished, and others get the rest at once", async () => {
  const { begun, ends, process } = gate();
  for (const text of ["a", "b", "c", "d"]) await publish(text);
  const consuming = start(process, 2);
  await eventually(async () => begun.length === 2 && (await state()).num_ack_pending === 2, "two in hand, none behind");
  const closing = consuming.close(3_000);
  const after: Delivery[] = [];
  start(async (delivery) => {
    after.push(delivery);
    return { kind: "ack" };
  });
  await eventually(() => after.length === 2, "another process has the two others");
  expect(after.map(textOf).sort()).toEqual(["c", "d"]);
  for (const end of ends) end({ kind: "ack" });
  await closing;
  await eventually(async () => (await state()).num_ack_pending === 0, "all are acked");
  expect([begun, after.length]).toEqual([["a", "b"], 2]);
});

test("close: nobody is waited for longer than the grace, and what is unfinished comes again", async () => {
  const { begun, process } = gate();
  await publish("slow");
  const consuming = start(process);
  await eventually(() => begun.length === 1, "it is in hand");
  await consuming.close(50);
  expect((await state()).num_ack_pending).toBe(1);
});

test("close: stops those who wait, and tells them", async () => {
  const consuming = start(
    (_, { stopping }) =>
      new Promise((resolve) => stopping.addEventListener("abort", () => resolve({ kind: "release" }))),
  );
  await publish("waiting");
  await eventually(async () => (await state()).num_ack_pending === 1, "it is in hand");
  await consuming.close(3_000);
  const taken: string[] = [];
  start(async (delivery) => {
    taken.push(textOf(delivery));
    return { kind: "ack" };
  });
  await eventually(() => taken.length === 1, "it was handed back");
});

test("close right after the start ends, and nothing is taken any more", async () => {
  const { begun, process } = gate();
  const consuming = start(process);
  const closed = consuming.close(1_000);
  await closed;
  await publish("after");
  const info = await state();
  expect([begun, info.num_ack_pending, info.num_waiting]).toEqual([[], 0, 0]);
  expect(consuming.healthy()).toBe(false);
});

test("a consumer that is deleted and made anew is consumed again", async () => {
  const seen: string[] = [];
  start(async (delivery) => {
    seen.push(textOf(delivery));
    return { kind: "ack" };
  });
  await publish("before");
  await eventually(async () => seen.length === 1 && (await state()).num_ack_pending === 0, "it consumes");
  await bench.manager.consumers.delete("DROPS", "planner");
  const { consumers } = await readTopology();
  await bench.manager.consumers.add(
    "DROPS",
    consumers.find(({ config }) => config.durable_name === "planner")?.config ?? {},
  );
  await publish("after");
  await eventually(() => seen.includes("after"), "it consumes again");
});

test("nats-server is killed and comes back: nothing is lost, work goes on", async () => {
  const seen = new Set<string>();
  const consuming = start(async (delivery) => {
    seen.add(textOf(delivery));
    return { kind: "ack" };
  });
  await publish("before");
  await eventually(() => seen.has("before"), "it consumes");
  await bench.restart();
  await eventually(
    () =>
      publish("after").then(
        () => true,
        () => false,
      ),
    "the log takes messages again",
  );
  await eventually(() => seen.has("after"), "it consumes again");
  await eventually(() => consuming.healthy(), "and says so");
});

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: unknown) => (error instanceof AppError ? error.code : `not ours: ${String(error)}`),
  );

async function read(subject: string, from?: number): Promise<LogEntry[]> {
  const entries: LogEntry[] = [];
  for await (const entry of logEntries(bench.connection, { stream: "DROPS", subject, from })) entries.push(entry);
  return entries;
}

test("logEntries: everything of a subject, oldest first, over more than one batch, and its consumer is gone afterwards", async () => {
  const core = bench.connection;
  for (let count = 0; count < 2_300; count++) core.publish("drops.created", Buffer.from(`${count}`));
  core.publish("drops.deleted", Buffer.from("other"));
  await core.flush();
  await eventually(async () => (await bench.manager.streams.info("DROPS")).state.messages === 2_301, "all are stored");
  const entries = await read("drops.created");
  expect(entries.map(textOf)).toEqual(Array.from({ length: 2_300 }, (_, count) => `${count}`));
  expect(entries.every(({ subject }) => subject === "drops.created")).toBe(true);
  expect(await read("graph.*")).toEqual([]);
  const names: string[] = [];
  for await (const consumer of bench.manager.consumers.list("DROPS")) names.push(consumer.name);
  expect(names.sort().filter((name) => !name.startsWith("erased-"))).toEqual(["graph", "notifications", "planner"]);
});

test("logEntries: from a time on", async () => {
  await publish("early");
  const [early] = await read("drops.created");
  const from = (early as LogEntry).time + 2;
  await eventually(() => Date.now() > from, "the clock goes on");
  await publish("late");
  expect((await read("drops.created", from)).map(textOf)).toEqual(["late"]);
  expect((await read("drops.created", 0)).map(textOf)).toEqual(["early", "late"]);
});

test("logEntries: who cannot take an entry stops the reading; a stream that is missing is an outage", async () => {
  await publish("one");
  await publish("two");
  const taken: string[] = [];
  const read = async (stream: string, subject: string): Promise<void> => {
    for await (const entry of logEntries(bench.connection, { stream, subject })) {
      taken.push(textOf(entry));
      throw new AppError("failed", "no");
    }
  };
  expect(await codeOf(read("DROPS", "drops.>"))).toBe("failed");
  expect(taken).toEqual(["one"]);
  expect(await codeOf(read("NONE", "x"))).toBe("unavailable");
});

test("a consumer that is deleted shows as unhealthy at once, and is pulled from again once it is back", async () => {
  const { begun, ends, process } = gate();
  const consuming = start(process);
  await eventually(() => consuming.healthy(), "it pulls");
  const { config } = await state();
  await bench.manager.consumers.delete("DROPS", "planner");
  await eventually(() => !consuming.healthy(), "it is unhealthy");
  await bench.manager.consumers.add("DROPS", config);
  await publish("again");
  await eventually(() => begun.length === 1 && consuming.healthy(), "it pulls again");
  ends[0]?.({ kind: "ack" });
});

test("messages of a consumer that is gone do not keep the slots of the next one", async () => {
  const handed: string[] = [];
  // As in an outage: held until the process stops, or the consumer is gone.
  const process: Process = async (delivery, { stopping }) => {
    handed.push(textOf(delivery));
    if (textOf(delivery).startsWith("old") && !stopping.aborted) await once(stopping, "abort");
    return { kind: textOf(delivery).startsWith("old") ? "release" : "ack" };
  };
  start(process, 2);
  for (const text of ["old-1", "old-2", "old-3", "old-4"]) await publish(text);
  await eventually(() => handed.length === 2, "all slots are taken");
  await bench.manager.streams.delete("DROPS");
  await applyTopology(bench.manager, { replicas: 1 }, silent);
  await publish("new");
  await eventually(() => handed.includes("new"), "the new consumer is pulled from");
});
