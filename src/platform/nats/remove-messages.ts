import type { NatsConnection } from "nats";
import { mapLimited, paced } from "../../kernel/concurrency.js";
import { throwIfStopping } from "../../kernel/errors.js";
import { askNats, managerOf } from "./ask.js";
import { createStoredMessages } from "./message.js";
import { type LogEntry, type LogRange, logEntries } from "./read-log.js";

interface Removal extends Pick<LogRange, "stream" | "subject" | "batch"> {
  readonly isWanted: (message: LogEntry) => boolean;
  readonly stopping: AbortSignal;
}

const AT_ONCE = 32;

/** Removes messages by what they say. Those that arrive meanwhile may stay. Everything rejects with AppError `unavailable`. */
export function createRemovals(connection: NatsConnection) {
  const messages = createStoredMessages(connection);
  async function* wantedOf({ isWanted, ...range }: Removal): AsyncGenerator<LogEntry> {
    for await (const entry of logEntries(connection, range)) if (isWanted(entry)) yield entry;
  }
  const removeWithin = async ({ stream, subject, isWanted, stopping }: Removal, from: number, until: number) => {
    for await (const message of messages.each(stream, subject, from)) {
      if (message.seq >= until) return;
      if (isWanted(message)) await messages.remove(stream, message.seq);
      throwIfStopping(stopping, "all messages are removed");
    }
  };
  return {
    remove: messages.remove,
    async fromLog(removal: Removal): Promise<void> {
      const { stream, stopping } = removal;
      await paced(wantedOf(removal), { atOnce: AT_ONCE, stopping }, ({ seq }) => messages.remove(stream, seq));
      throwIfStopping(stopping, "all messages are removed");
    },
    /** Reads several stretches of a work queue at once. */
    async fromQueue(removal: Removal): Promise<void> {
      const { first_seq, last_seq } = await askNats(`the state of ${removal.stream}`, async () => {
        const { streams } = await managerOf(connection);
        return (await streams.info(removal.stream)).state;
      });
      // An empty stream may name 0 as its first sequence.
      const first = Math.max(1, first_seq);
      const stretch = Math.ceil((last_seq + 1 - first) / AT_ONCE);
      const starts = Array.from({ length: AT_ONCE }, (_, index) => first + index * stretch);
      await mapLimited(starts, AT_ONCE, (from) => removeWithin(removal, from, from + stretch));
    },
  };
}
