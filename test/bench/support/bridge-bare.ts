/** A bare loop of the benchmark `bridge`: its own process, as the bridge is. */
import { once } from "node:events";
import { RandomIdGenerator } from "@opentelemetry/sdk-trace-base";
import { Redis } from "ioredis";
import { connect } from "nats";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";
import { messageId, parseEvent } from "../../../src/contracts/events.js";
import type { BareOrder } from "./bridge-shared.js";

const IN_FLIGHT = 4_096;

const [order] = (await once(process, "message")) as [BareOrder];
const nats = (await connect({ servers: order.natsUrl })) as NatsConnectionImpl;
const redis = new Redis(order.redisUrl);
const inbox = `_INBOX.${nats.info?.client_id}.bare`;
const ids = new RandomIdGenerator();
let waiting: Buffer[] = [];
let [sent, acked, scheduled] = [0, 0, false];
let trace = "";

const textOf = (header: string, size: number, body: string): string =>
  `HPUB ${order.subject} ${inbox} ${header.length} ${header.length + size}\r\n${header}${body}\r\n`;

const bare = (payload: Buffer): string =>
  textOf(`NATS/1.0\r\nNats-Msg-Id: ${sent}\r\n\r\n`, payload.length, payload.toString());

function checked(payload: Buffer): string {
  const event = parseEvent("drop_created", payload, Date.now());
  const body = JSON.stringify(event.payload);
  const header = `NATS/1.0\r\n${trace}\r\nNats-Msg-Id: ${messageId(event)}\r\n\r\n`;
  return textOf(header, Buffer.byteLength(body), body);
}

const messageOf = order.isChecked ? checked : bare;

const send = (): void => {
  scheduled = false;
  const now = waiting.slice(0, IN_FLIGHT - (sent - acked));
  waiting = waiting.slice(now.length);
  let text = "";
  // As a bridge that exports no traces.
  trace = `traceparent: 00-${ids.generateTraceId()}-${ids.generateSpanId()}-00`;
  for (const payload of now) {
    sent++;
    text += messageOf(payload);
  }
  nats.protocol.sendCommand(Buffer.from(text));
};
const schedule = (): void => {
  if (!scheduled) setImmediate(send);
  scheduled = true;
};
nats.subscribe(inbox, {
  callback: (error, message) => {
    if (error !== null || message.string().includes('"error"')) throw error ?? new Error(message.string());
    acked++;
    if (waiting.length > 0) schedule();
  },
});
redis.on("messageBuffer", (_: Buffer, payload: Buffer) => {
  waiting.push(payload);
  schedule();
});
await redis.subscribe(order.channel);
process.send?.("ready");
