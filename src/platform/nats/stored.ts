import { type NatsConnection, NatsError, type StoredMsg } from "nats";
import type { Delivery } from "../../delivery/handler.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { headersOf } from "./message.js";

/** A message as it lies in a stream, whoever was handed it. */
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

/** JetStream's code for "no message found" (nats-server, server/errors.json); removing answers the second. */
const GONE = new Set([10037, 10043]);

/** Reads and removes stored messages. */
export function createStoredMessages(connection: NatsConnection): StoredMessages {
  const asking = async <T>(ask: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof NatsError && GONE.has(error.api_error?.err_code ?? 0)) return undefined;
      throw new AppError("unavailable", `NATS: ${oneLine(error)}`, { cause: error });
    }
  };
  const manager = connection.jetstreamManager({ checkAPI: false });
  const get = (stream: string, query: { seq: number; next_by_subj?: string }) =>
    // Servers know `next_by_subj` since 2.9; the client's types do not.
    asking(async () => messageOf(stream, await (await manager).streams.getMessage(stream, query)));
  return {
    read: (stream, seq) => get(stream, { seq }),
    next: (stream, subject, seq) => get(stream, { seq, next_by_subj: subject }),
    async remove(stream, seq) {
      await asking(async () => (await manager).streams.deleteMessage(stream, seq, false));
    },
  };
}

function messageOf(stream: string, { seq, subject, header, data, time }: StoredMsg): StoredMessage {
  return { stream, seq, subject, headers: headersOf(header), body: data, time: time.getTime() };
}
