import { type ConsumerMessages, createInbox, type JsMsg, type Msg, type NatsConnection } from "nats";
import type { PullConsumerMessagesImpl } from "nats/lib/jetstream/consumer.js";
import type { JsMsgImpl } from "nats/lib/jetstream/jsmsg.js";
import type { MsgImpl } from "nats/lib/nats-base-client/msg.js";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";

// All private fields of the client that we use, with the reasons in docs/decisions/0019-libraries.md.
// test/integration/wire.test.ts fails if a new version of the client has changed them.

export function sendBytes(connection: NatsConnection, bytes: Uint8Array): void {
  (connection as NatsConnectionImpl).protocol.sendCommand(bytes);
}

/** The rights of a user may require the prefix of a subject for replies. */
export const newInbox = (connection: NatsConnection): string =>
  createInbox((connection as NatsConnectionImpl).options.inboxPrefix);

/** Returns the lines of the headers as they were sent; empty if there are none. */
export function headOf(message: Msg | JsMsg): string {
  const { _rdata: bytes, _msg: from } = ("ack" in message ? (message as JsMsgImpl).msg : message) as MsgImpl;
  return from.hdr > 0 ? Buffer.from(bytes.buffer, bytes.byteOffset, from.hdr).toString() : "";
}

/** The client's own close drops the messages on their way, which come again only after ack_wait. */
export async function drainPull(messages: ConsumerMessages): Promise<void> {
  await (messages as PullConsumerMessagesImpl).sub.drain().catch(() => undefined);
  await messages.closed();
}

/**
 * The client ends a fetch by a clock of its own, half a second after its time, and drops what has come meanwhile: all that
 * waits in the socket of a process that was busy for so long. The server says when the time is over, and a monitor notices
 * if that is lost.
 */
export function waitForServer(messages: ConsumerMessages): void {
  (messages as PullConsumerMessagesImpl).timeout?.cancel();
}

/** The client leaves its monitor off if a reset was under way when the link broke: a lost pull would stay lost. */
export function restartMonitor(messages: ConsumerMessages | undefined): void {
  (messages as PullConsumerMessagesImpl | undefined)?.monitor?.restart();
}
