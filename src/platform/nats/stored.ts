import type { NatsConnection, StoredMsg } from "nats";
import type { Delivery } from "../../delivery/handler.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";
import { headersOf } from "./message.js";

/** A message as it lies in a stream. */
export type StoredMessage = Omit<Delivery, "consumer" | "deliveries">;

/** Single messages of any stream. Everything rejects with AppError `unavailable`. */
export interface StoredMessages {
  /** Undefined where it is gone. */
  read(stream: string, seq: number): Promise<StoredMessage | undefined>;
  /** The first message of a subject (wildcards allowed) from `seq` on; undefined where there is none. */
  next(stream: string, subject: string, seq: number): Promise<StoredMessage | undefined>;
  /** Does nothing where it is gone. */
  remove(stream: string, seq: number): Promise<void>;
}

/** Reads and removes stored messages. */
export function createStoredMessages(connection: NatsConnection): StoredMessages {
  // Servers know `next_by_subj` since 2.9; the client's types do not.
  const get = (stream: string, query: { seq: number; next_by_subj?: string }): Promise<StoredMessage | undefined> =>
    askNats(`a message of ${stream}`, async () => {
      const { streams } = await managerOf(connection);
      const found = await unlessAbsent(streams.getMessage(stream, query), "message");
      return found && messageOf(stream, found);
    });
  return {
    read: (stream, seq) => get(stream, { seq }),
    next: (stream, subject, seq) => get(stream, { seq, next_by_subj: subject }),
    remove: (stream, seq) =>
      askNats(`removing a message of ${stream}`, async () => {
        const { streams } = await managerOf(connection);
        try {
          await unlessAbsent(streams.deleteMessage(stream, seq, false), "message");
        } catch (error) {
          // Some servers answer with the code of any failed deletion (10057).
          if (await get(stream, { seq })) throw error;
        }
      }),
  };
}

function messageOf(stream: string, { seq, subject, header, data, time }: StoredMsg): StoredMessage {
  return { stream, seq, subject, headers: headersOf(header), body: data, time: time.getTime() };
}
