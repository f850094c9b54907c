/** The bare loop of the benchmark `bridge`: its own process, as the bridge is. */
import { once } from "node:events";
import { Redis } from "ioredis";
import { connect } from "nats";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";
import type { BareOrder } from "./bridge-shared.js";

const IN_FLIGHT = 4_096;

const [order] = (await once(process, "message")) as [BareOrder];
const nats = (await connect({ servers: order.natsUrl })) as NatsConnectionImpl;
const redis = new Redis(order.redisUrl);
const inbox = `_INBOX.${nats.info?.client_id}.bare`;
let waiting: Buffer[] = [];
let [sent, acked, scheduled] = [0, 0, false];

const send = (): void => {
  scheduled = false;
  const now = waiting.slice(0, IN_FLIGHT - (sent - acked));
  waiting = waiting.slice(now.length);
  let text = "";
  for (const payload of now) {
    const header = `NATS/1.0\r\nNats-Msg-Id: ${++sent}\r\n\r\n`;
    text += `HPUB ${order.subject} ${inbox} ${header.length} ${header.length + payload.length}\r\n${header}${payload.toString()}\r\n`;
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
