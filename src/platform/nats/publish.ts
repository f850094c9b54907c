import {
  type ApiError,
  createInbox,
  ErrorCode,
  type Msg,
  MsgHdrsImpl,
  type NatsConnection,
  NatsError,
  type Status,
} from "nats";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";
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

/**
 * Resolves only after the PubAck. @throws AppError `invalid` for a message too large or malformed, `failed` where
 * another stream takes its subject, otherwise `unavailable`: a timeout is ambiguous, and the same id may be sent again.
 */
export type Publish = (message: Message) => Promise<Stored>;

/** Resolves once each message has its PubAck, or the error that `Publish` throws. */
export type PublishAll = (messages: readonly Message[]) => Promise<readonly (Stored | AppError)[]>;

export interface Publisher {
  readonly publish: Publish;
  readonly publishAll: PublishAll;
}

/** The server names what is false by leaving it out. */
type PubAck = Omit<Stored, "duplicate"> & { readonly duplicate?: boolean; readonly error?: ApiError };

const ACK_TIMEOUT_MS = 5_000;

/** JetStream error codes about one message: nats-server, server/errors.json. */
const TOO_LARGE = new Set([10054, 10097]);
const OTHER_STREAM = 10060;
/** Stream, account or server have no room left. */
const FULL = new Set([10077, 10002, 10023, 10028, 10047]);
const MALFORMED: ReadonlySet<string> = new Set([ErrorCode.BadSubject, ErrorCode.BadHeader]);

interface PublisherOptions {
  /** Called where no stream takes a subject. */
  readonly noStream?: () => void;
  readonly timeoutMs?: number;
}

export function createPublisher(connection: NatsConnection, options: PublisherOptions = {}): Publisher {
  const { noStream, timeoutMs = ACK_TIMEOUT_MS } = options;
  const pubAcks = new PubAcks(connection, timeoutMs);
  const publishAll: PublishAll = (messages) =>
    new Promise((resolve) => {
      if (messages.length === 0) return resolve([]);
      const results = new Array<Stored | AppError>(messages.length);
      let missing = messages.length;
      for (const [index, message] of messages.entries()) {
        pubAcks.send(message, (result) => {
          if (refusalOf(result) === "missing") noStream?.();
          results[index] = result;
          if (--missing === 0) resolve(results);
        });
      }
    });
  return {
    publishAll,
    publish: async (message) => {
      const [result] = await publishAll([message]);
      if (result === undefined || result instanceof AppError) throw result;
      return result;
    },
  };
}

interface Pending {
  readonly subject: string;
  readonly deadline: number;
  readonly settle: (result: Stored | AppError) => void;
}

/** Counts PubAcks on one inbox: a request of the client takes ten times the processor time. */
class PubAcks {
  /** By the last token of the reply subject, in the order of their deadlines. */
  readonly #pending = new Map<string, Pending>();
  readonly #unsent: { readonly message: Message; readonly settle: Pending["settle"] }[] = [];
  readonly #inbox: string;
  #sent = 0;
  #subscribed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly connection: NatsConnection,
    private readonly timeoutMs: number,
  ) {
    // A user's rights may require the prefix.
    this.#inbox = `${createInbox((connection as NatsConnectionImpl).options.inboxPrefix)}.`;
    void this.#followDenials();
    void connection.closed().then(() => {
      this.#fail(() => true, NatsError.errorForCode(ErrorCode.ConnectionClosed));
      clearTimeout(this.#timer);
    });
  }

  /** Messages of one tick go out in one write. */
  send(message: Message, settle: Pending["settle"]): void {
    this.#unsent.push({ message, settle });
    if (this.#unsent.length > 1) return;
    setImmediate(() => {
      for (const one of this.#unsent.splice(0)) this.#publish(one.message, one.settle);
      this.#watchDeadlines();
    });
  }

  #publish(message: Message, settle: Pending["settle"]): void {
    const { subject, body } = message;
    const token = String(++this.#sent);
    try {
      if (!isPlainSubject(subject)) throw NatsError.errorForCode(ErrorCode.BadSubject);
      this.#subscribe();
      this.connection.publish(subject, body, { reply: this.#inbox + token, headers: new Fields(message) });
    } catch (error) {
      return settle(publishError(error, subject));
    }
    this.#pending.set(token, { subject, settle, deadline: performance.now() + this.timeoutMs });
  }

  #subscribe(): void {
    if (this.#subscribed) return;
    this.connection.subscribe(`${this.#inbox}*`, {
      callback: (denied, message) => {
        if (!denied) return this.#take(message);
        this.#subscribed = false;
        this.#fail(() => true, denied);
      },
    });
    this.#subscribed = true;
  }

  #take(message: Msg): void {
    const token = message.subject.slice(this.#inbox.length);
    const pending = this.#pending.get(token);
    if (!pending) return;
    this.#pending.delete(token);
    pending.settle(resultOf(message, pending.subject));
  }

  #fail(isConcerned: (pending: Pending) => boolean, error: NatsError): void {
    for (const [token, pending] of this.#pending) {
      if (!isConcerned(pending)) continue;
      this.#pending.delete(token);
      pending.settle(publishError(error, pending.subject));
    }
  }

  #watchDeadlines(): void {
    const [first] = this.#pending.values();
    if (this.#timer || !first) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const now = performance.now();
      this.#fail(({ deadline }) => deadline <= now, NatsError.errorForCode(ErrorCode.Timeout));
      this.#watchDeadlines();
    }, first.deadline - performance.now());
    this.#timer.unref();
  }

  /** Without the right to publish, no PubAck and no error comes to the inbox. */
  async #followDenials(): Promise<void> {
    for await (const status of this.connection.status()) {
      const { permissionContext: denied } = status as Status & {
        readonly permissionContext?: { readonly operation: string; readonly subject: string };
      };
      if (denied?.operation !== "publish") continue;
      const error = NatsError.errorForCode(ErrorCode.PermissionsViolation);
      this.#fail(({ subject }) => subject === denied.subject, error);
    }
  }
}

function resultOf(message: Msg, subject: string): Stored | AppError {
  try {
    // No stream takes the subject: the server answers with a status and no body.
    if (message.data.length === 0) throw NatsError.errorForCode(ErrorCode.NoResponders);
    const { error: refusal, stream, seq, duplicate = false } = message.json<PubAck>();
    if (refusal) throw Object.assign(new NatsError(refusal.description, String(refusal.code)), { api_error: refusal });
    // Clustered 2.10 servers may answer "duplicate" for a message they have not stored (nats-server#6415).
    if (duplicate && seq === 0) throw new AppError("unavailable", `${subject}: the id is still in process`);
    return { stream, seq, duplicate };
  } catch (error) {
    return publishError(error, subject);
  }
}

const HEADER_NAME = /^[!-9;-~]+$/;
const LINE_BREAK = /[\r\n]/;

/** Costs a fraction of what the client takes to check, set and encode fields. */
class Fields extends MsgHdrsImpl {
  constructor({ id, headers, stream }: Message) {
    super();
    for (const name in headers) this.#put(name, headers[name] as string);
    this.#put("Nats-Msg-Id", id);
    if (stream !== undefined) this.#put("Nats-Expected-Stream", stream);
  }

  override encode(): Uint8Array {
    return Buffer.from(this.toString());
  }

  #put(name: string, value: string): void {
    if (!HEADER_NAME.test(name) || LINE_BREAK.test(value)) throw NatsError.errorForCode(ErrorCode.BadHeader);
    this.headers.set(name, [value]);
  }
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
