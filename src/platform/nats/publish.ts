import { ErrorCode, type JetStreamClient, type MsgHdrs, NatsError, headers as newHeaders } from "nats";
import { isPlainSubject } from "../../contracts/subjects.js";
import { AppError, codeOf, oneLine } from "../../kernel/errors.js";

export interface Message {
  readonly subject: string;
  readonly body: Uint8Array;
  /** `Nats-Msg-Id`. */
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The only stream that may store it; undefined: whichever takes its subject. */
  readonly stream?: string | undefined;
}

export interface Stored {
  readonly stream: string;
  readonly seq: number;
  /** It was stored before under the same id. */
  readonly duplicate: boolean;
}

/** Stores a message; resolves only after its PubAck. */
export type Publish = (message: Message) => Promise<Stored>;

const ACK_TIMEOUT_MS = 5_000;

/** JetStream error codes (nats-server, server/errors.json) that are about this one message. */
const TOO_LARGE = new Set([10054, 10097]);
const OTHER_STREAM = 10060;
/** The stream is full and discards what is new, or the account or the server has no room left. */
const FULL = new Set([10077, 10002, 10023, 10028, 10047]);
/** Told by the client, before anything is sent. */
const MALFORMED: ReadonlySet<string> = new Set([ErrorCode.BadSubject, ErrorCode.BadHeader]);

/**
 * Stores messages in JetStream.
 *
 * @throws AppError `invalid` for a message larger than the server takes, or with a subject or header
 * that is none, `failed` where another stream than the one named takes its subject, `unavailable` for everything else: an ack that
 * timed out is ambiguous, and the same id may be sent again.
 * @param noStream called where no stream takes a subject: the stream is gone, or JetStream is.
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

/**
 * The reason why the server does not store a message: it is too large, malformed or refused by its stream, or the stream
 * is full or missing. Undefined for every other error of {@link createPublish}: an outage.
 */
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
