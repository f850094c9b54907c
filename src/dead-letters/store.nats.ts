import { type JetStreamManager, millis, type NatsConnection, NatsError } from "nats";
import { STREAM } from "../contracts/subjects.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";
import { headersOf } from "../platform/nats/message.js";
import { logEntries } from "../platform/nats/read-log.js";
import { type DeadLetterStore, parseDeadLetter, type StoredDeadLetter } from "./dead-letter.js";

const TIMEOUT_MS = 5 * SECOND;
/** Bounds memory: each body may be as large as a message. */
const BODIES_AT_ONCE = 50;

/** JetStream's codes (nats-server, server/errors.json). */
const NO_MESSAGE = 10037;
const NO_STREAM = 10059;

export function createDeadLetterStore(connection: NatsConnection): DeadLetterStore {
  const managed = managerOf(connection);
  const find: DeadLetterStore["find"] = (seq) =>
    answered(STREAM.dlq, async () => {
      try {
        const { subject, header, data, time } = await (await managed()).streams.getMessage(STREAM.dlq, { seq });
        return parseDeadLetter({ seq, subject, time: time.getTime(), headers: headersOf(header), body: data });
      } catch (error) {
        if (apiCode(error) === NO_MESSAGE) return undefined;
        throw error;
      }
    });
  return {
    read: (range) => read(connection, range),
    find,
    remove: async (seq) => {
      try {
        await answered(STREAM.dlq, async () => (await managed()).streams.deleteMessage(STREAM.dlq, seq, false));
      } catch (error) {
        // Servers report a message that is gone by different codes.
        if (await find(seq)) throw error;
      }
    },
  };
}

/** Reads the max_age of the log in ms; Infinity if it is unlimited. */
export function createLogAge(connection: NatsConnection): () => Promise<number> {
  const managed = managerOf(connection);
  return () =>
    answered(STREAM.drops, async () => {
      const { config } = await (await managed()).streams.info(STREAM.drops);
      return config.max_age === 0 ? Number.POSITIVE_INFINITY : millis(config.max_age);
    });
}

async function* read(
  connection: NatsConnection,
  { after, bodies = false }: { after?: number | undefined; bodies?: boolean } = {},
): AsyncGenerator<StoredDeadLetter> {
  try {
    const range = { stream: STREAM.dlq, subject: "dlq.>", after, headersOnly: !bodies };
    for await (const entry of logEntries(connection, { ...range, ...(bodies ? { batch: BODIES_AT_ONCE } : {}) }))
      yield parseDeadLetter(entry);
  } catch (error) {
    throw unavailable(STREAM.dlq, error);
  }
}

function managerOf(connection: NatsConnection): () => Promise<JetStreamManager> {
  let manager: Promise<JetStreamManager> | undefined;
  return () => (manager ??= connection.jetstreamManager({ checkAPI: false, timeout: TIMEOUT_MS }));
}

async function answered<T>(stream: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw unavailable(stream, error);
  }
}

const apiCode = (error: unknown): number | undefined =>
  error instanceof NatsError ? error.api_error?.err_code : undefined;

function unavailable(stream: string, error: unknown): AppError {
  if (error instanceof AppError) return error;
  const what =
    apiCode(error) === NO_STREAM
      ? `the stream ${stream} is not there: the service creates it when it starts`
      : "NATS did not answer";
  return new AppError("unavailable", `${what} (${oneLine(error)})`, { cause: error });
}
