import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, expect } from "@jest/globals";
import { AckPolicy, Events, nanos, nuid, StorageType } from "nats";
import type { Context, Delivery, DeliveryOutcome } from "../../src/delivery/handler.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { type ConsumeOptions, type Consuming, consume } from "../../src/platform/nats/consume/consume.js";
import { applyTopology } from "../../src/platform/nats/topology.js";
import { privateNats, temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { TcpProxy } from "../support/proxy.js";
import { slowTest, quickTest as test } from "../support/suite.js";

const bench = natsOfFile();
const running: Consuming[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((one) => one.close(100)));
  await bench.manager.streams.purge("DROPS");
});

const publish = (text: string) => bench.publish({ subject: "drops.created", body: text, id: text });
const textOf = ({ body }: Delivery) => Buffer.from(body).toString();
const state = () => bench.manager.consumers.info("DROPS", "planner");

function start(
  options: Pick<ConsumeOptions, "process" | "batch"> & Partial<ConsumeOptions>,
  connection = bench.connection,
): Consuming {
  const of = { stream: "DROPS", consumer: "planner", ackWaitMs: 15_000, concurrency: 8, log: silent };
  const consuming = consume(connection, { ...of, ...options });
  running.push(consuming);
  return consuming;
}

// Invariant 10.
test("a batch takes first deliveries only: what was delivered before is handled by itself", async () => {
  const [together, alone]: [string[], string[]] = [[], []];
  const options = {
    batch: {
      messages: 8,
      process: async (deliveries: readonly Delivery[]) => {
        together.push(...deliveries.map(textOf));
        return deliveries;
      },
    },
    process: async (delivery: Delivery): Promise<DeliveryOutcome> => {
      alone.push(`${textOf(delivery)} ${delivery.deliveries}`);
      return delivery.deliveries === 1 ? { kind: "retry", delayMs: 1 } : { kind: "ack" };
    },
  };
  start(options);
  await publish("a");
  await eventually(async () => (await state()).ack_floor.stream_seq > 0, "it is acked");
  expect([together, alone]).toEqual([["a"], ["a 1", "a 2"]]);
});

async function makeAnew(): Promise<void> {
  await bench.manager.streams.delete("DROPS");
  await applyTopology(bench.manager, { replicas: 1 }, silent);
}

// Invariant 1.
test.each(["by itself", "in a batch"])(
  "the ack of a message whose stream was made anew takes no message of the new one away (%s)",
  async (how) => {
    const begun: string[] = [];
    const ends: (() => void)[] = [];
    const wait = (delivery: Delivery) =>
      new Promise<void>((resolve) => {
        begun.push(textOf(delivery));
        ends.push(resolve);
      });
    const single = (delivery: Delivery) => wait(delivery).then((): DeliveryOutcome => ({ kind: "ack" }));
    const batch = async ([first]: readonly Delivery[], context: Context) => {
      context.beginNext?.();
      await wait(first as Delivery);
      return [];
    };
    await makeAnew();
    start({ process: single, batch: how === "in a batch" ? { messages: 8, process: batch } : undefined });
    await publish("old");
    await eventually(() => begun.length === 1, "the old one is in hand");
    await makeAnew();
    await publish("new");
    await eventually(() => begun.length === 2, "the new one is in hand");
    expect((await state()).delivered).toMatchObject({ consumer_seq: 1, stream_seq: 1 });
    ends[0]?.();
    await publish("last");
    await eventually(() => begun.length === 3, "the next one is in hand");
    expect([begun, (await state()).num_ack_pending]).toEqual([["old", "new", "last"], 2]);
    for (const end of ends) end();
    await eventually(async () => (await state()).num_ack_pending === 0, "both are acked");
  },
);

/** Handlings that end once the test says so. */
function gate() {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const process = (delivery: Delivery): Promise<DeliveryOutcome> => {
    begun.push(textOf(delivery));
    return new Promise((resolve) => ends.push(() => resolve({ kind: "ack" })));
  };
  return { begun, ends, process };
}

async function startBehindProxy(options: Pick<ConsumeOptions, "process"> & Partial<ConsumeOptions>) {
  const proxy = await TcpProxy.open(bench.broker.port);
  const connection = await connectNats({ servers: [proxy.url("nats")], name: "test" }, silent);
  const consuming = start(options, connection);
  let isBroken = false;
  const watch = async (): Promise<void> => {
    for await (const { type } of connection.status()) if (type === Events.Disconnect) isBroken = true;
  };
  void watch();
  const close = async (): Promise<void> => {
    await consuming.close(100);
    await connection.close();
    await proxy.close();
  };
  return { proxy, consuming, isBroken: () => isBroken, close };
}

// Invariant 1.
test("an ack that is given while the link is down goes out once NATS has named the same consumer", async () => {
  await makeAnew();
  const { begun, ends, process } = gate();
  const { proxy, isBroken, close } = await startBehindProxy({ process });
  await publish("long");
  await eventually(() => begun.length === 1, "it is in hand");
  proxy.refuse(true);
  await eventually(isBroken, "the break is noticed");
  ends[0]?.();
  expect((await state()).num_ack_pending).toBe(1);
  proxy.refuse(false);
  await eventually(async () => (await state()).ack_floor.stream_seq === 1, "it is acked");
  expect(await state()).toMatchObject({ num_redelivered: 0, delivered: { consumer_seq: 1 } });
  await close();
});

// Invariant 1.
test.each(["the link is down", "no pull is open"])(
  "while %s, a stream made anew at once keeps its messages from acks of the former one",
  async (situation) => {
    await makeAnew();
    const { begun, ends, process } = gate();
    const { proxy, isBroken, close } = await startBehindProxy({ process, concurrency: 1 });
    await publish("old");
    await eventually(() => begun.length === 1, "all slots are taken");
    const isDown = situation === "the link is down";
    if (isDown) {
      proxy.refuse(true);
      await eventually(isBroken, "the break is noticed");
      ends[0]?.();
    }
    await makeAnew();
    await publish("new");
    const taken = await (await bench.connection.jetstream().consumers.get("DROPS", "planner")).next();
    expect(taken?.info).toMatchObject({ streamSequence: 1, deliverySequence: 1 });
    if (isDown) proxy.refuse(false);
    else ends[0]?.();
    await publish("last");
    await eventually(() => begun.length === 2, "the next one is in hand");
    expect([begun, (await state()).num_ack_pending]).toEqual([["old", "last"], 2]);
    taken?.ack();
    ends[1]?.();
    await eventually(async () => (await state()).num_ack_pending === 0, "both are acked");
    await close();
  },
);

/** Resolves once a message that is not acked for this time has come again. */
async function passed(ackWaitMs: number): Promise<void> {
  const name = `passed-${nuid.next()}`;
  await bench.manager.streams.add({ name, subjects: [name], storage: StorageType.Memory });
  await bench.manager.consumers.add(name, {
    durable_name: name,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(ackWaitMs),
  });
  const jetstream = bench.connection.jetstream();
  await jetstream.publish(name);
  const consumer = await jetstream.consumers.get(name, name);
  const deliveries = [await consumer.next(), await consumer.next()].map((message) => message?.info.deliveryCount);
  expect(deliveries).toEqual([1, 2]);
  await bench.manager.streams.delete(name);
}

// Invariant 10.
test("what waits for room is not delivered again, however long batches take", async () => {
  const ackWaitMs = 1_000;
  const begun: Delivery[] = [];
  const process = async (deliveries: readonly Delivery[]) => {
    begun.push(...deliveries);
    await passed(ackWaitMs);
    return [];
  };
  const texts = Array.from({ length: 24 }, (_, number) => `message ${number}`);
  await makeAnew();
  for (const text of texts) await publish(text);
  await bench.manager.consumers.update("DROPS", "planner", { ack_wait: nanos(ackWaitMs) });
  start({ ackWaitMs, process: async () => ({ kind: "ack" }), batch: { messages: 4, process } });
  await eventually(async () => (await state()).ack_floor.stream_seq >= texts.length, "all are acked");
  expect(begun.map(textOf)).toEqual(texts);
  expect(await state()).toMatchObject({ num_redelivered: 0, delivered: { consumer_seq: texts.length } });
});

// Invariant 1.
test("a process that may not hear of deletions knows a stream made anew by its first delivery", async () => {
  const users = [
    { user: "owner", password: "o" },
    { user: "worker", password: "w", permissions: { subscribe: { deny: ["$JS.EVENT.>"] } } },
  ];
  const file = join(await temporaryFolder("rights"), "nats.conf");
  await writeFile(file, JSON.stringify({ authorization: { users } }));
  const broker = await privateNats({ extraArgs: ["-c", file] });
  const open = (user: string) =>
    connectNats({ servers: [broker.url.replace("//", `//${user}@`)], name: "test" }, silent);
  const [owner, worker] = [await open("owner:o"), await open("worker:w")];
  const manager = await owner.jetstreamManager();
  const make = async (...texts: readonly string[]): Promise<void> => {
    await manager.streams.delete("DROPS").catch(() => false);
    await applyTopology(manager, { replicas: 1 }, silent);
    await manager.consumers.update("DROPS", "planner", { ack_wait: nanos(2_000) });
    for (const text of texts) await owner.jetstream().publish("drops.created", text);
  };
  const { begun, ends, process } = gate();
  await make("old-1", "old-2", "old-3");
  const consuming = start({ process, concurrency: 3, ackWaitMs: 2_000 }, worker);
  await eventually(() => begun.length === 3, "all slots are taken");
  await make("new-1", "new-2", "new-3");
  const [first, second, third] = ends.splice(0);
  first?.();
  third?.();
  const isBegun = (text: string): boolean => {
    for (const end of ends.splice(0)) end();
    return begun.includes(text);
  };
  const delivered = async () => (await manager.consumers.info("DROPS", "planner")).delivered.consumer_seq;
  await eventually(async () => isBegun("new-1") && (await delivered()) >= 2, "new ones are in hand");
  second?.();
  await eventually(() => isBegun("new-2"), "the one that has the sequence of an old one is handled");
  await consuming.close(100);
  await Promise.all([owner.close(), worker.close()]);
  await broker.stop();
});

// Invariant 10.
slowTest(
  "work in hand goes on over an outage of NATS, and is not begun again",
  async () => {
    const ackWaitMs = 60_000;
    await makeAnew();
    await bench.manager.consumers.update("DROPS", "planner", { ack_wait: nanos(ackWaitMs) });
    const begun: Context[] = [];
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const process = async (_: Delivery, context: Context): Promise<DeliveryOutcome> => {
      begun.push(context);
      await ended;
      return { kind: "ack" };
    };
    const { proxy, consuming, close } = await startBehindProxy({ ackWaitMs, process });
    await publish("long");
    await eventually(() => begun.length === 1, "it is in hand");
    proxy.refuse(true);
    // Longer than a pull lasts, and its questions.
    await passed(22_000);
    proxy.refuse(false);
    await eventually(() => consuming.healthy(), "it pulls again", 30_000);
    await passed(6_000);
    await publish("next");
    await eventually(() => begun.length === 2, "the next one is in hand");
    expect(begun.map(({ stopping }) => stopping.aborted)).toEqual([false, false]);
    end();
    await eventually(async () => (await state()).ack_floor.stream_seq === 2, "both are acked");
    expect(await state()).toMatchObject({ num_redelivered: 0, delivered: { consumer_seq: 2 } });
    await close();
  },
  90_000,
);
