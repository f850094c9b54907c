import { ErrorCode, NatsError } from "nats";
import { AppError, codeOf, oneLine } from "../../kernel/errors.js";

/** nats-server has these codes for errors about one message (server/errors.json). */
const TOO_LARGE = new Set([10054, 10097]);
const OTHER_STREAM = 10060;
/** Stream, account or server have no room left. */
const FULL = new Set([10077, 10002, 10023, 10028, 10047]);
/** No leader, or more than the stream can take at this moment (429, since 2.11). */
const PASSING = new Set([503, 429]);
const MALFORMED: ReadonlySet<string> = new Set([ErrorCode.BadSubject, ErrorCode.BadHeader]);

export function publishError(error: unknown, subject: string): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof NatsError) {
    const code = error.api_error?.err_code;
    if (error.code === "MAX_PAYLOAD_EXCEEDED" || (code !== undefined && TOO_LARGE.has(code))) {
      return new AppError("invalid", `${subject}: the message is larger than the server accepts`, { cause: error });
    }
    if (MALFORMED.has(error.code))
      return new AppError("invalid", "the subject or a header of the message is malformed", { cause: error });
    if (code === OTHER_STREAM)
      return new AppError("failed", `${subject}: belongs to another stream than the one named`, { cause: error });
  }
  const why = (error instanceof NatsError && error.api_error?.description) || error;
  return new AppError("unavailable", `NATS did not store a message for ${subject}: ${oneLine(why)}`, {
    cause: error,
    publicMessage: "NATS did not store a message",
  });
}

/** Returns undefined for an outage. */
export function publishRefusal(error: unknown): "toolarge" | "malformed" | "refused" | "full" | "missing" | undefined {
  const cause = error instanceof AppError ? error.cause : undefined;
  if (!(cause instanceof NatsError)) return undefined;
  if (MALFORMED.has(cause.code)) return "malformed";
  if (codeOf(error) === "invalid") return "toolarge";
  const refusal = cause.api_error;
  if (refusal === undefined) return cause.code === ErrorCode.NoResponders ? "missing" : undefined;
  if (FULL.has(refusal.err_code ?? 0)) return "full";
  return PASSING.has(refusal.code) ? undefined : "refused";
}
