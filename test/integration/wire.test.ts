import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import type { ConsumerMessages, JsMsg, Msg } from "nats";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { drainPull, headOf, newInbox, restartMonitor, sendBytes, waitForServer } from "../../src/platform/nats/wire.js";
import { connectRedis } from "../../src/platform/redis/connect.js";
import { failUnanswered } from "../../src/platform/redis/wire.js";
import { privateRedis } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";
import { newPort } from "../support/ports.js";

let bench: NatsBench;

beforeAll(async () => {
  bench = await openNats();
});
afterAll(() => bench.close());

async function pull(): Promise<ConsumerMessages> {
  const consumer = await bench.connection.jetstream().consumers.get("DROPS", "planner");
  return await consumer.consume({ max_messages: 4, expires: 8_000, idle_heartbeat: 2_000 });
}

test("bytes of the protocol reach the server as they are, and heads of messages are read as they were sent", async () => {
  const { connection } = bench;
  const heard: Msg[] = [];
  connection.subscribe("drops.>", { callback: (_, message) => heard.push(message) });
  const head = "NATS/1.0\r\nX-Text: ü\r\n\r\n";
  const size = Buffer.byteLength(head);
  sendBytes(
    connection,
    Buffer.from(`HPUB drops.created ${size} ${size + 1}\r\n${head}a\r\nPUB drops.created 1\r\nb\r\n`),
  );
  const messages = await pull();
  const pulled: JsMsg[] = [];
  void (async () => {
    for await (const message of messages) pulled.push(message);
  })();
  await eventually(() => pulled.length === 2 && heard.length === 2, "both are here");
  for (const both of [heard, pulled]) {
    expect(both.map(headOf)).toEqual([head, ""]);
    expect(both.map((message) => message.string())).toEqual(["a", "b"]);
  }
  for (const message of pulled) message.ack();
  await drainPull(messages);
});

test.each([
  ["that it does not know", []],
  ["that it does not tell", ["--cluster-preferred-endpoint-type", "unknown-endpoint"]],
  ["of a host name that it does not know", ["--cluster-preferred-endpoint-type", "hostname"]],
])("a cluster of one node is reached at the address of the URL, in place of one %s", async (_, more) => {
  const extraArgs = ["--cluster-enabled", "yes", "--cluster-port", String(await newPort()), ...more];
  const node = await privateRedis({ extraArgs });
  const own = new Redis(node.url);
  await own.cluster("ADDSLOTSRANGE", 0, 16_383);
  await eventually(async () => (await own.cluster("INFO")).includes("cluster_state:ok"), "the cluster works");
  const client = connectRedis([node.url], silent, { cluster: true });
  await eventually(() => client.status === "ready", "the client is ready");
  await client.set("a", "1");
  expect(await client.get("a")).toBe("1");
  client.disconnect();
  own.disconnect();
  await node.stop();
});

test("an inbox begins with the prefix of its connection", async () => {
  const servers = [bench.broker.url.replace("//", "//alice:secret@")];
  const connection = await connectNats({ servers, name: "test" }, silent);
  expect(newInbox(connection)).toMatch(/^_INBOX\.alice\../);
  expect(newInbox(bench.connection)).toMatch(/^_INBOX\../);
  await connection.close();
});

test("a pull that is drained takes in what is on its way, and ends", async () => {
  const messages = await pull();
  const taken: string[] = [];
  const ended = (async () => {
    for await (const message of messages) {
      taken.push(message.string());
      message.ack();
    }
  })();
  bench.connection.publish("drops.created", "on its way");
  await eventually(() => messages.getReceived() === 1, "it is here");
  await drainPull(messages);
  await ended;
  expect(taken).toEqual(["on its way"]);
});

/** Publishes in a thread of its own, once the message has come that it waits for. */
const PUBLISHER = `
  const { connect } = require("nats");
  const { parentPort, workerData } = require("node:worker_threads");
  connect({ servers: workerData.url }).then((connection) => {
    parentPort.once("message", async () => {
      for (let number = 0; number < 4; number++) connection.publish("drops.created", String(number));
      await connection.flush();
      Atomics.store(workerData.published, 0, 1);
      Atomics.notify(workerData.published, 0);
      await connection.close();
    });
    parentPort.postMessage("ready");
  });`;

test("a fetch takes in what comes while the process is busy beyond its time, and ends when the server says so", async () => {
  const { connection, broker, manager } = bench;
  await manager.streams.purge("DROPS");
  const published = new Int32Array(new SharedArrayBuffer(4));
  const publisher = new Worker(PUBLISHER, { eval: true, workerData: { url: broker.url, published } });
  await once(publisher, "message");
  const consumer = await connection.jetstream().consumers.get("DROPS", "planner");
  const messages = await consumer.fetch({ max_messages: 8, expires: 1_000 });
  waitForServer(messages);
  const taken: string[] = [];
  const ended = (async () => {
    for await (const message of messages) {
      taken.push(message.string());
      message.ack();
    }
  })();
  await connection.flush();
  publisher.postMessage("publish");
  Atomics.wait(published, 0, 0);
  // Nothing is read for longer than the client waits.
  Atomics.wait(published, 0, 1, 1_500);
  await ended;
  expect(taken).toEqual(["0", "1", "2", "3"]);
});

test("a pull has a monitor that can be started again", async () => {
  const messages = await pull();
  const { monitor } = messages as ConsumerMessages & { monitor: { timer: unknown; cancel(): void } };
  monitor.cancel();
  expect(monitor.timer).toBe(0);
  restartMonitor(messages);
  expect(monitor.timer).not.toBe(0);
  messages.stop();
});

test("a command that was sent fails as soon as its connection closes", async () => {
  const broker = await privateRedis();
  const client = new Redis(Number(new URL(broker.url).port), { lazyConnect: true, retryStrategy: () => null });
  failUnanswered(client);
  await client.connect();
  const waiting = client.blpop("empty", 0);
  await eventually(() => client.commandQueue.length === 1, "it is sent");
  client.stream.destroy();
  await expect(waiting).rejects.toThrow("the connection was closed before the answer");
  await broker.stop();
});
