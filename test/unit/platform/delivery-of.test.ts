import { expect, test } from "@jest/globals";
import { toJsMsg } from "nats/lib/jetstream/jsmsg.js";
import { MsgImpl } from "nats/lib/nats-base-client/msg.js";
import { deliveryOf } from "../../../src/platform/nats/message.js";

const SOURCE = { stream: "DROPS", consumer: "planner" };

function messageWith(reply: string) {
  const bytes = (text: string) => Buffer.from(text);
  const arguments_ = { subject: bytes("drops.created"), reply: bytes(reply), sid: 1, hdr: -1, size: 2 };
  return toJsMsg(new MsgImpl(arguments_, bytes("{}"), undefined as never));
}

test.each([
  ["of servers without a domain", "$JS.ACK.DROPS.planner.2.1234.99.1795247805572999999.7"],
  ["with domain and account", "$JS.ACK.hub.ABCDEF.DROPS.planner.2.1234.99.1795247805572999999.7"],
  ["with domain, account and a last random token", "$JS.ACK._.ABCDEF.DROPS.planner.2.1234.99.1795247805572999999.7.x1"],
])("a reply subject %s is read as the client reads it, and its time to the ms", (_, reply) => {
  const message = messageWith(reply);
  const { info } = message;
  const read = deliveryOf(message, SOURCE);
  expect(read).toMatchObject({ ...SOURCE, seq: 1234, deliveries: 2, time: 1795247805572 });
  expect(read).toMatchObject({ seq: info.streamSequence, deliveries: info.deliveryCount });
});

test.each(["", "_INBOX.1", "$JS.ACK.DROPS.planner.2.1234"])(
  "a message with the reply subject %j is of no consumer",
  (reply) => {
    expect(() => deliveryOf(messageWith(reply), SOURCE)).toThrow("no consumer delivered this message");
  },
);
