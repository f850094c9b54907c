import { type JsMsg, type MsgHdrs, millis } from "nats";
import type { Delivery, Headers } from "../../delivery/handler.js";

/** A message as handlers see it. */
export function deliveryOf(message: JsMsg): Delivery {
  const { info } = message;
  return {
    stream: info.stream,
    consumer: info.consumer,
    seq: info.streamSequence,
    time: millis(info.timestampNanos),
    subject: message.subject,
    headers: headersOf(message.headers),
    body: message.data,
    deliveries: info.redeliveryCount,
  };
}

const NO_HEADERS: Headers = { get: () => undefined, entries: () => [] };

/** Wraps a message's headers; the client answers "" for a missing one. */
export function headersOf(held: MsgHdrs | undefined): Headers {
  if (!held) return NO_HEADERS;
  return {
    get: (name) => (held.has(name) ? held.get(name) : undefined),
    entries: () => held.keys().map((name) => [name, held.get(name)] as const),
  };
}
