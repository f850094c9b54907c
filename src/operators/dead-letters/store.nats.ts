import { millis, type NatsConnection } from "nats";
import { STREAM } from "../../contracts/subjects.js";
import { askNats, managerOf } from "../../platform/nats/ask.js";
import { createStoredMessages } from "../../platform/nats/message.js";
import { logEntries } from "../../platform/nats/read-log.js";
import { type DeadLetterStore, parseDeadLetter, type StoredDeadLetter } from "./stored-dead-letter.js";

/** Bounds memory: each body may be as large as a message. */
const BODIES_AT_ONCE = 50;

export function createDeadLetterStore(nats: NatsConnection): DeadLetterStore {
  const messages = createStoredMessages(nats);
  return {
    read: (range) => read(nats, range),
    find: async (seq) => {
      const message = await messages.read(STREAM.dlq, seq);
      return message && parseDeadLetter(message);
    },
    remove: (seq) => messages.remove(STREAM.dlq, seq),
  };
}

/** Reads the max_age of the log in ms; Infinity if it is unlimited. */
export const createLogAge = (nats: NatsConnection) => (): Promise<number> =>
  askNats(`the age of ${STREAM.drops}`, async () => {
    const { config } = await (await managerOf(nats)).streams.info(STREAM.drops);
    return config.max_age === 0 ? Number.POSITIVE_INFINITY : millis(config.max_age);
  });

async function* read(
  nats: NatsConnection,
  { after, bodies = false }: { after?: number | undefined; bodies?: boolean } = {},
): AsyncGenerator<StoredDeadLetter> {
  const batch = bodies ? BODIES_AT_ONCE : undefined;
  const range = { stream: STREAM.dlq, subject: "dlq.>", after, headersOnly: !bodies, batch };
  for await (const entry of logEntries(nats, range)) yield parseDeadLetter(entry);
}
