import { type JetStreamManager, type NatsConnection, NatsError } from "nats";
import { AppError, oneLine } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";

const TIMEOUT_MS = 5 * SECOND;

/** Sends no request: NATS may be unavailable. */
export const managerOf = (connection: NatsConnection): Promise<JetStreamManager> =>
  connection.jetstreamManager({ checkAPI: false, timeout: TIMEOUT_MS });

/** nats-server has these codes in server/errors.json; a message removed twice answers 10043. */
export const ABSENT = { stream: 10059, consumer: 10014, message: 10037 } as const;
type Absent = keyof typeof ABSENT;

export async function unlessAbsent<T>(asked: Promise<T>, ...things: readonly Absent[]): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (things.some((thing) => isAbsent(error, thing))) return undefined;
    throw error;
  }
}

/** `what` names the question. @throws AppError `unavailable` if NATS does not answer, or answers with an error */
export async function askNats<T>(what: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw natsError(what, error);
  }
}

/** Generators use this, since they cannot be awaited. */
export function natsError(what: string, error: unknown): AppError {
  if (error instanceof AppError) return error;
  const missing = isAbsent(error, "stream") ? "the stream is missing, the service creates it when it starts: " : "";
  return new AppError("unavailable", `NATS: ${what}: ${missing}${oneLine(error)}`, {
    cause: error,
    publicMessage: "NATS is unavailable",
  });
}

const isAbsent = (error: unknown, thing: Absent): boolean =>
  error instanceof NatsError && error.api_error?.err_code === ABSENT[thing];
