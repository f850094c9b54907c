import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "@jest/globals";
import { EventLog } from "../../src/consistency/index.js";
import type { Delivery } from "../../src/delivery/handler.js";
import { silent } from "../../src/kernel/logger.js";
import { consume } from "../../src/platform/nats/consume/consume.js";
import { createStoredMessages } from "../../src/platform/nats/message.js";
import { eventually } from "../support/eventually.js";
import { type NatsBench, openNats } from "../support/nats.js";

let bench: NatsBench;
beforeAll(async () => {
  bench = await openNats();
  await publishRaw("drops.deleted", "Not a name: x", '{"drop_id":"d1"}');
});
afterAll(() => bench.close());

/** The client refuses to send such a header; servers and other clients do not. */
async function publishRaw(subject: string, field: string, body: string): Promise<void> {
  const socket = connect(Number(new URL(bench.broker.url).port), "127.0.0.1");
  await once(socket, "data");
  const headers = `NATS/1.0\r\n${field}\r\n\r\n`;
  socket.write('CONNECT {"verbose":false,"headers":true}\r\n');
  socket.write(`HPUB ${subject} ${headers.length} ${headers.length + body.length}\r\n${headers}${body}\r\n`);
  await eventually(
    async () => (await bench.manager.streams.info("DROPS")).state.messages === 1,
    "the message is stored",
  );
  socket.destroy();
}

const headersIn = ({ headers }: Pick<Delivery, "headers">) => [headers.get("traceparent"), [...headers.entries()]];

// Invariant 1.
test("a message whose headers cannot be read is read without them, from the log and by its number", async () => {
  const read: unknown[] = [];
  for await (const one of new EventLog(bench.connection).readRange({ since: 0, until: Number.POSITIVE_INFINITY }))
    read.push(headersIn(one));
  const stored = await createStoredMessages(bench.connection).read("DROPS", 1);
  read.push(stored && headersIn(stored));
  expect(read).toEqual([
    [undefined, []],
    [undefined, []],
  ]);
});

// Invariant 1.
test("a message whose headers cannot be read is handled as one without any", async () => {
  const seen: unknown[] = [];
  const consuming = consume(bench.connection, {
    stream: "DROPS",
    consumer: "planner",
    ackWaitMs: 15_000,
    concurrency: 8,
    process: async (delivery) => {
      seen.push(headersIn(delivery));
      return { kind: "ack" };
    },
    log: silent,
  });
  try {
    await eventually(() => seen.length > 0, "it is handled");
    expect(seen).toEqual([[undefined, []]]);
  } finally {
    await consuming.close(1_000);
  }
});
