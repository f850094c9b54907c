import { type JsMsg, type MsgHdrs, millis, type NatsConnection, type StoredMsg } from "nats";
import type { Delivery, Headers } from "../../delivery/handler.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";

export function deliveryOf(message: JsMsg): Delivery {
  const { info } = message;
  return {
    stream: info.stream,
    consumer: info.consumer,
    seq: info.streamSequence,
    time: millis(info.timestampNanos),
    subject: message.subject,
    headers: headersOf(() => message.headers),
    body: message.data,
    deliveries: info.redeliveryCount,
  };
}

/**
 * Reading the headers of a message takes the client as long as the rest of it: they are read where they matter. It throws
 * where a name is none, which servers and other clients take: such a message has no headers, and keeps no other from
 * being read.
 */
export function headersOf(header: () => MsgHdrs | undefined): Headers {
  let held: ReadonlyMap<string, readonly string[]> | undefined;
  const read = () => {
    try {
      return new Map(header() ?? []);
    } catch {
      return new Map();
    }
  };
  const all = () => {
    held ??= read();
    return held;
  };
  return {
    get: (name) => all().get(name)?.[0] || undefined,
    entries: () => Array.from(all(), ([name, [value = ""]]) => [name, value] as const),
  };
}

export type StoredMessage = Omit<Delivery, "consumer" | "deliveries">;

/** Everything rejects with AppError `unavailable`. */
export interface StoredMessages {
  read(stream: string, seq: number): Promise<StoredMessage | undefined>;
  /** The first from `seq` on; the subject may have wildcards. */
  next(stream: string, subject: string, seq: number): Promise<StoredMessage | undefined>;
  remove(stream: string, seq: number): Promise<void>;
}

export function createStoredMessages(connection: NatsConnection): StoredMessages {
  // Servers know `next_by_subj` since 2.9; the client's types do not.
  const get = (stream: string, query: { seq: number; next_by_subj?: string }): Promise<StoredMessage | undefined> =>
    askNats(`a message of ${stream}`, async () => {
      const { streams } = await managerOf(connection);
      const found = await unlessAbsent(streams.getMessage(stream, query), "message");
      return found && storedOf(stream, found);
    });
  return {
    read: (stream, seq) => get(stream, { seq }),
    next: (stream, subject, seq) => get(stream, { seq, next_by_subj: subject }),
    async remove(stream, seq) {
      try {
        await askNats(`removing a message of ${stream}`, async () =>
          (await managerOf(connection)).streams.deleteMessage(stream, seq, false),
        );
      } catch (error) {
        // Servers answer in several ways where it is gone already.
        if (await get(stream, { seq })) throw error;
      }
    },
  };
}

function storedOf(stream: string, stored: StoredMsg): StoredMessage {
  const { seq, subject, data: body, time } = stored;
  const headers = headersOf(() => stored.header);
  return { stream, seq, subject, headers, body, time: time.getTime() };
}
