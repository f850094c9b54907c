import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { Redis } from "ioredis";
import type { ConsumerMessages, JsMsg, Msg } from "nats";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { drainPull, headOf, newInbox, restartMonitor, sendBytes } from "../../src/platform/nats/wire.js";
import { failUnanswered } from "../../src/platform/redis/wire.js";
import { privateRedis } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";

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
