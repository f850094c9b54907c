import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, expect, test } from "@jest/globals";
import { connect, type Msg } from "nats";
import { AppError } from "../../src/kernel/errors.js";
import { silent } from "../../src/kernel/logger.js";
import { connectNats } from "../../src/platform/nats/connect.js";
import { createPublisher, type Message, type Stored } from "../../src/platform/nats/publish.js";
import { freeze, privateNats, temporaryFolder } from "../support/brokers.js";
import { eventually } from "../support/eventually.js";
import { natsOfFile } from "../support/nats-of-file.js";
import { TcpProxy } from "../support/proxy.js";

const bench = natsOfFile();
beforeEach(async () => {
  await bench.manager.streams.purge("DROPS");
});

let ids = 0;
const message = (of: Partial<Message> = {}): Message => ({
  ...{ subject: "drops.created", body: Buffer.from("x"), id: `m${ids++}` },
  ...of,
});
const outcome = (result: Stored | AppError) => (result instanceof AppError ? result.code : result.stream);
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: unknown) => (error instanceof AppError ? error.code : `not ours: ${String(error)}`),
  );
const stored = async () => (await bench.manager.streams.info("DROPS")).state.messages;

test("the same id is stored once, and says so", async () => {
  const first = await bench.publish(message({ id: "same" }));
  const again = await bench.publish(message({ id: "same" }));
  expect([first.duplicate, again.duplicate, again.seq]).toEqual([false, true, first.seq]);
  expect(await stored()).toBe(1);
});

// Invariant 8.
test("too large is invalid, no stream or a full one is an outage", async () => {
  expect(await codeOf(bench.publish(message({ body: Buffer.alloc(1_100_000) })))).toBe("invalid");
  expect(await codeOf(bench.publish(message({ subject: "nobody.listens" })))).toBe("unavailable");
  const held = (await bench.manager.streams.info("DLQ")).config;
  const subject = "dlq.invalid.x";
  await bench.manager.streams.update("DLQ", { ...held, max_msg_size: 10 });
  expect(await codeOf(bench.publish(message({ subject, body: Buffer.alloc(100) })))).toBe("invalid");
  await bench.manager.streams.update("DLQ", { ...held, max_bytes: 200 });
  expect(await codeOf(bench.publish(message({ subject, body: Buffer.alloc(500) })))).toBe("unavailable");
  await bench.manager.streams.update("DLQ", held);
});

test("bodies of text and of bytes are stored in their order, byte for byte, however many and large they are", async () => {
  const bodies = [
    ...["plain", Buffer.of(0, 255, 13, 10, 128), "", "ü€😀\ud800\r\n", Buffer.alloc(0)],
    ...Array.from({ length: 300 }, (_, number) =>
      number % 7 === 0 ? Buffer.alloc(number, number) : "é".repeat(number),
    ),
  ];
  const headers = { traceparent: "00-ü" };
  const results = await bench.publishAll(bodies.map((body) => message({ body, headers })));
  const [{ seq: first }] = results as [Stored];
  expect(results).toEqual(bodies.map((_, at) => ({ stream: "DROPS", seq: first + at, duplicate: false })));
  for (const [at, body] of bodies.entries()) {
    const held = await bench.manager.streams.getMessage("DROPS", { seq: first + at });
    expect(Buffer.from(held.data)).toEqual(Buffer.from(body));
    expect([held.header.get("traceparent"), held.header.keys().length]).toEqual(["00-ü", 2]);
  }
});

// Invariant 8.
test("of many messages each has its own PubAck or its own error", async () => {
  let missing = 0;
  const { publishAll } = createPublisher(bench.connection, { noStream: () => missing++ });
  const { seq } = await bench.publish(message({ id: "before" }));
  const results = await publishAll([
    message(),
    message({ body: Buffer.alloc(1_100_000) }),
    message({ subject: "drops.created x" }),
    message({ headers: { "a header": "b" } }),
    message({ headers: { header: "two\r\nlines" } }),
    message({ subject: "nobody.listens" }),
    message({ stream: "NOTIFY" }),
    message({ id: "before" }),
    message({ subject: "notify.user.ada", headers: { traceparent: "00-1" }, stream: "NOTIFY" }),
  ]);
  expect(results.map(outcome)).toEqual([
    ...["DROPS", "invalid", "invalid", "invalid", "invalid", "unavailable", "failed", "DROPS", "NOTIFY"],
  ]);
  expect(results[7]).toEqual({ stream: "DROPS", seq, duplicate: true });
  expect([await stored(), missing]).toEqual([2, 1]);
  expect(await publishAll([])).toEqual([]);
});

test("thousands at once are stored once each, and each result stands at the place of its message", async () => {
  const messages = Array.from({ length: 3_000 }, () => message());
  const results = await bench.publishAll([...messages, ...messages]);
  const seqs = results.map((result) => (result as Stored).seq);
  expect(seqs.slice(3_000)).toEqual(seqs.slice(0, 3_000));
  expect(new Set(seqs).size).toBe(3_000);
  const held = await bench.manager.streams.getMessage("DROPS", { seq: seqs[1_234] as number });
  expect(held.header.get("Nats-Msg-Id")).toBe(messages[1_234]?.id);
});

// Invariant 8.
test("PubAcks that come late, or in another order, are those of their messages", async () => {
  const late: Msg[] = [];
  const answering = bench.connection.subscribe("late.*", { callback: (_, asked) => late.push(asked) });
  const { publish, publishAll } = createPublisher(bench.connection);
  const waiting = ["late.a", "late.b"].map((subject) => publish(message({ subject })));
  const before = await Promise.all(Array.from({ length: 6 }, () => publishAll([message(), message()])));
  await eventually(() => late.length === 2, "both wait for their PubAcks");
  const more = [publish(message({ subject: "late.c" })), publish(message())] as const;
  const { seq: last } = await more[1];
  await eventually(() => late.length === 3, "three wait for their PubAcks");
  for (const asked of late.toReversed()) asked.respond(`{"stream":"${asked.subject}","seq":7}`);
  const results = await Promise.all([...waiting, more[0]]);
  expect(results.map(({ stream }) => stream)).toEqual(["late.a", "late.b", "late.c"]);
  const seqs = before.flat().map((one) => (one as Stored).seq);
  expect(seqs).toEqual(Array.from({ length: 12 }, (_, at) => last - 12 + at));
  expect((await publish(message())).seq).toBe(last + 1);
  answering.unsubscribe();
});

// Invariant 8.
test("a PubAck of a duplicate that is not stored yet is an outage", async () => {
  const answering = bench.connection.subscribe("hasty.a", {
    callback: (_, asked) => void asked.respond('{"stream":"HASTY","seq":0,"duplicate":true}'),
  });
  expect(await codeOf(bench.publish(message({ subject: "hasty.a" })))).toBe("unavailable");
  answering.unsubscribe();
});

test("messages without a PubAck when the server dies are an outage; later ones are stored over the same connection", async () => {
  const { publish, publishAll } = createPublisher(bench.connection, { timeoutMs: 1_000 });
  await publish(message());
  await freeze(bench.broker);
  const pending = publishAll([message(), message()]);
  expect((await pending).map(outcome)).toEqual(["unavailable", "unavailable"]);
  bench.broker.kill("SIGCONT");
  await bench.restart();
  await eventually(async () => (await codeOf(publish(message()))) === "done", "the log takes messages again");
});

test("a connection that closes fails what has no PubAck, and later messages", async () => {
  const broker = await privateNats();
  const connection = await connect({ port: broker.port });
  const { publish } = createPublisher(connection);
  const manager = await connection.jetstreamManager();
  await manager.streams.add({ name: "DROPS", subjects: ["drops.>"] });
  await publish(message());
  await freeze(broker);
  const pending = codeOf(publish(message()));
  await connection.close();
  expect(await pending).toBe("unavailable");
  expect(await codeOf(publish(message()))).toBe("unavailable");
  broker.kill("SIGCONT");
  await broker.stop();
});

test("a message without the right to its subject is an outage at once, as is one whose PubAck may not be read", async () => {
  const rights = { publish: ["drops.>"], subscribe: ["_INBOX.ada.>"] };
  const users = [{ user: "ada", password: "a", permissions: rights }];
  const file = join(await temporaryFolder("rights"), "nats.conf");
  await writeFile(file, JSON.stringify({ jetstream: {}, authorization: { users } }));
  const broker = await privateNats({ extraArgs: ["-c", file] });
  const open = (inboxPrefix: string) =>
    connect({ servers: `127.0.0.1:${broker.port}`, user: "ada", pass: "a", inboxPrefix });
  const timeoutMs = 60_000;
  const allowed = await open("_INBOX.ada");
  const denied = await open("_INBOX.bob");
  expect(await codeOf(createPublisher(allowed, { timeoutMs }).publish(message({ subject: "dlq.x" })))).toBe(
    "unavailable",
  );
  expect(await codeOf(createPublisher(denied, { timeoutMs }).publish(message()))).toBe("unavailable");
  await Promise.all([allowed.close(), denied.close()]);
  await broker.stop();
});

// Invariant 11.
test("no more messages than a stream takes at once are without their PubAck; the others follow", async () => {
  const proxy = await TcpProxy.open(Number(new URL(bench.broker.url).port));
  const connection = await connectNats({ servers: [proxy.url("nats")], name: "publisher" }, silent);
  try {
    const { publishAll } = createPublisher(connection, { timeoutMs: 60_000 });
    proxy.set("pause", "toClient");
    const messages = Array.from({ length: 10_000 }, (_, at) => ({
      subject: "drops.created",
      id: `a${at}`,
      body: "{}",
    }));
    const published = publishAll(messages);
    await eventually(async () => (await stored()) === 4_096 || `${await stored()} are`, "as many as may are stored");
    proxy.set("pass");
    expect((await published).filter((one) => one instanceof AppError)).toEqual([]);
    expect(await stored()).toBe(10_000);
  } finally {
    await connection.close();
    await proxy.close();
  }
}, 60_000);
