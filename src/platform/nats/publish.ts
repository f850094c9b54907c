import { ErrorCode, type JetStreamClient, type MsgHdrs, NatsError, headers as newHeaders } from "nats";
import { isPlainSubject } from "../../contracts/subjects.js";
import { AppError, codeOf, oneLine } from "../../kernel/errors.js";

export interface Message {
  readonly subject: string;
  readonly body: Uint8Array;
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The only stream that may store it; unset: any that takes its subject. */
  readonly stream?: string | undefined;
}

export interface Stored {
  readonly stream: string;
  readonly seq: number;
  readonly duplicate: boolean;
}

/** Resolves only after the PubAck. */
export type Publish = (message: Message) => Promise<Stored>;

const ACK_TIMEOUT_MS = 5_000;

/** JetStream error codes about one message: nats-server, server/errors.json. */
const TOO_LARGE = new Set([10054, 10097]);
const OTHER_STREAM = 10060;
/** Stream, account or server have no room left. */
const FULL = new Set([10077, 10002, 10023, 10028, 10047]);
const MALFORMED: ReadonlySet<string> = new Set([ErrorCode.BadSubject, ErrorCode.BadHeader]);

/**
 * @throws AppError `invalid` for a message too large or malformed, `failed` where another stream takes its subject,
 * otherwise `unavailable`: a timeout is ambiguous, and the same id may be sent again. Calls `noStream` where no stream
 * takes the subject.
 */
export function createPublish(jetstream: JetStreamClient, noStream: () => void = () => undefined): Publish {
  const publish: Publish = async ({ subject, body, id, headers, stream }) => {
    try {
      if (!isPlainSubject(subject)) throw NatsError.errorForCode(ErrorCode.BadSubject);
      const ack = await jetstream.publish(subject, body, {
        msgID: id,
        timeout: ACK_TIMEOUT_MS,
        ...(headers ? { headers: messageHeaders(headers) } : {}),
        ...(stream === undefined ? {} : { expect: { streamName: stream } }),
      });
      // Clustered 2.10 servers may answer "duplicate" for a message they have not stored (nats-server#6415).
      if (ack.duplicate && ack.seq === 0) throw new AppError("unavailable", `${subject}: the id is still in process`);
      return { stream: ack.stream, seq: ack.seq, duplicate: ack.duplicate };
    } catch (error) {
      if (error instanceof NatsError && error.code === ErrorCode.NoResponders) noStream();
      throw publishError(error, subject);
    }
  };
  return publish;
}

function messageHeaders(fields: Readonly<Record<string, string>>): MsgHdrs {
  const built = newHeaders();
  for (const name in fields) built.set(name, fields[name] as string);
  return built;
}

function publishError(error: unknown, subject: string): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof NatsError) {
    const code = error.api_error?.err_code;
    if (error.code === "MAX_PAYLOAD_EXCEEDED" || (code !== undefined && TOO_LARGE.has(code))) {
      return new AppError("invalid", `${subject}: the message is larger than the server takes`, { cause: error });
    }
    if (MALFORMED.has(error.code))
      return new AppError("invalid", "the message has a subject or a header that is none", { cause: error });
    if (code === OTHER_STREAM)
      return new AppError("failed", `${subject}: is kept by another stream than the one named`, { cause: error });
  }
  const why = (error instanceof NatsError && error.api_error?.description) || error;
  return new AppError("unavailable", `NATS did not store a message for ${subject}: ${oneLine(why)}`, {
    cause: error,
  });
}

/** Undefined for an outage. */
export function refusalOf(error: unknown): "toolarge" | "malformed" | "refused" | "full" | "missing" | undefined {
  const cause = error instanceof AppError ? error.cause : undefined;
  if (!(cause instanceof NatsError)) return undefined;
  if (MALFORMED.has(cause.code)) return "malformed";
  if (codeOf(error) === "invalid") return "toolarge";
  const refusal = cause.api_error;
  if (refusal === undefined) return cause.code === ErrorCode.NoResponders ? "missing" : undefined;
  if (FULL.has(refusal.err_code ?? 0)) return "full";
  return refusal.code === 503 ? undefined : "refused";
}
