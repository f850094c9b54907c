import { type ApiError, createInbox, ErrorCode, type Msg, type NatsConnection, NatsError, type Status } from "nats";
import type { NatsConnectionImpl } from "nats/lib/nats-base-client/nats.js";
import { isPlainSubject } from "../../contracts/subjects.js";
import { AppError } from "../../kernel/errors.js";
import { fieldsOf } from "./message.js";
import { publishError, refusalOf } from "./publish-errors.js";

export interface Message {
  readonly subject: string;
  readonly body: Uint8Array | string;
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

/** The server names what is false by leaving it out. */
type PubAck = Omit<Stored, "duplicate"> & { readonly duplicate?: boolean; readonly error?: ApiError };

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

const ACK_TIMEOUT_MS = 5_000;

interface PublisherOptions {
  /** Called where no stream takes a subject. */
  readonly noStream?: () => void;
  readonly timeoutMs?: number;
}

export function createPublisher(connection: NatsConnection, options: PublisherOptions = {}): Publisher {
  const pubAcks = new PubAcks(connection as NatsConnectionImpl, options);
  const publishAll: PublishAll = (messages) =>
    new Promise((resolve) => {
      if (messages.length === 0) return resolve([]);
      const deadline = performance.now() + (options.timeoutMs ?? ACK_TIMEOUT_MS);
      pubAcks.send({ messages, results: new Array(messages.length), missing: messages.length, deadline, resolve });
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

interface Batch {
  readonly messages: readonly Message[];
  readonly results: (Stored | AppError)[];
  missing: number;
  readonly deadline: number;
  readonly resolve: (results: readonly (Stored | AppError)[]) => void;
}

interface Pending {
  readonly batch: Batch;
  readonly index: number;
  readonly subject: string;
}

/** Servers since 2.11 refuse messages of a stream that wait to be stored beyond 10,000, of all publishers. */
const MOST_PENDING = 4_096;

/** Characters that are encoded together. */
const TEXT_AT_ONCE = 32 * 1024;

/** Counts PubAcks on one inbox: a request of the client takes ten times the processor time. */
class PubAcks {
  /** By the last token of the reply subject, in the order of their deadlines. */
  readonly #pending = new Map<number, Pending>();
  readonly #unsent: Batch[] = [];
  #next = 0;
  #scheduled = false;
  readonly #inbox: string;
  #sent = 0;
  #text = "";
  #subscribed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly connection: NatsConnectionImpl,
    private readonly options: PublisherOptions,
  ) {
    // A user's rights may require the prefix.
    this.#inbox = `${createInbox(connection.options.inboxPrefix)}.`;
    void this.#followDenials();
    void connection.closed().then(() => {
      this.#fail(() => true, NatsError.errorForCode(ErrorCode.ConnectionClosed));
      clearTimeout(this.#timer);
    });
  }

  /** Messages of one tick go out in one write. */
  send(batch: Batch): void {
    this.#unsent.push(batch);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#sendSome();
    });
  }

  #sendSome(): void {
    const now = performance.now();
    for (let [first] = this.#unsent; first && this.#pending.size < MOST_PENDING; [first] = this.#unsent) {
      this.#publish(first, this.#next++, now);
      if (this.#next < first.messages.length) continue;
      this.#unsent.shift();
      this.#next = 0;
    }
    this.#writeText();
    this.#watchDeadlines();
  }

  #publish(batch: Batch, index: number, now: number): void {
    const message = batch.messages[index] as Message;
    const { subject } = message;
    const token = ++this.#sent;
    try {
      if (batch.deadline <= now) throw NatsError.errorForCode(ErrorCode.Timeout);
      if (!isPlainSubject(subject)) throw NatsError.errorForCode(ErrorCode.BadSubject);
      this.#subscribe();
      this.#write(message, this.#inbox + token);
    } catch (error) {
      return this.#settle(batch, index, publishError(error, subject));
    }
    this.#pending.set(token, { batch, index, subject });
  }

  /** As the client's `publish`, which encodes and copies the parts of each message one by one. */
  #write(message: Message, reply: string): void {
    const { subject, body } = message;
    this.connection._check(subject, false, true);
    const fields = fieldsOf(message);
    const size = Buffer.byteLength(fields);
    const total = size + Buffer.byteLength(body);
    if (total > (this.connection.info?.max_payload ?? total))
      throw NatsError.errorForCode(ErrorCode.MaxPayloadExceeded);
    this.#text += `HPUB ${subject} ${reply} ${size} ${total}\r\n${fields}`;
    if (typeof body === "string") this.#text += body;
    else {
      this.#writeText();
      this.connection.protocol.sendCommand(body);
    }
    this.#text += "\r\n";
    if (this.#text.length > TEXT_AT_ONCE) this.#writeText();
  }

  #writeText(): void {
    if (this.#text !== "") this.connection.protocol.sendCommand(Buffer.from(this.#text));
    this.#text = "";
  }

  #settle(batch: Batch, index: number, result: Stored | AppError): void {
    if (result instanceof AppError && refusalOf(result) === "missing") this.options.noStream?.();
    batch.results[index] = result;
    if (--batch.missing === 0) batch.resolve(batch.results);
    if (this.#unsent.length > 0) this.#schedule();
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
    const token = Number(message.subject.slice(this.#inbox.length));
    const pending = this.#pending.get(token);
    if (!pending) return;
    this.#pending.delete(token);
    this.#settle(pending.batch, pending.index, resultOf(message, pending.subject));
  }

  #fail(isConcerned: (pending: Pending) => boolean, error: NatsError): void {
    for (const [token, pending] of this.#pending) {
      if (!isConcerned(pending)) continue;
      this.#pending.delete(token);
      this.#settle(pending.batch, pending.index, publishError(error, pending.subject));
    }
  }

  #watchDeadlines(): void {
    const [first] = this.#pending.values();
    if (this.#timer || !first) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const now = performance.now();
      this.#fail(({ batch }) => batch.deadline <= now, NatsError.errorForCode(ErrorCode.Timeout));
      this.#watchDeadlines();
    }, first.batch.deadline - performance.now());
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
