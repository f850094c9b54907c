import { type ApiError, ErrorCode, type Msg, type NatsConnection, NatsError, type Status } from "nats";
import { toNotifyPart } from "../../contracts/notify-parts.js";
import { isPlainSubject } from "../../contracts/subjects.js";
import { AppError } from "../../kernel/errors.js";
import { publishError, publishRefusal } from "./publish-errors.js";
import { newInbox, sendBytes } from "./wire.js";

export interface Message {
  readonly subject: string;
  readonly body: Uint8Array | string;
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Only this stream may store it; if it is unset, any that takes its subject may. */
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
 * Resolves only after the PubAck. @throws AppError `invalid` for a message too large or malformed, `failed` if
 * another stream takes its subject, otherwise `unavailable`: a timeout is ambiguous, and the same id may be sent again.
 */
export type Publish = (message: Message) => Promise<Stored>;

/** Resolves once each message has its PubAck, or the error that `Publish` throws. */
export type PublishAll = (messages: readonly Message[]) => Promise<readonly (Stored | AppError)[]>;

export type Publisher = ReturnType<typeof createPublisher>;

const ACK_TIMEOUT_MS = 5_000;

interface PublisherOptions {
  readonly noStream?: () => void;
  readonly timeoutMs?: number;
  /** Number of streams that share the notifications. Default: 1. */
  readonly notifyParts?: number;
}

export function createPublisher(connection: NatsConnection, options: PublisherOptions = {}) {
  const pubAcks = new PubAcks(connection, options);
  let batches = 0;
  const { notifyParts = 1 } = options;
  const addressed = (message: Message): Message => ({
    ...message,
    subject: toNotifyPart(message.subject, notifyParts),
  });
  const publishAll: PublishAll = (given) =>
    new Promise((resolve) => {
      if (given.length === 0) return resolve([]);
      const messages = notifyParts === 1 ? given : given.map(addressed);
      const deadline = performance.now() + (options.timeoutMs ?? ACK_TIMEOUT_MS);
      const results = new Array(messages.length);
      pubAcks.send({ messages, results, missing: messages.length, name: ++batches, sent: 0, deadline, resolve });
    });
  const publish: Publish = async (message) => {
    const [result] = await publishAll([message]);
    if (result === undefined || result instanceof AppError) throw result;
    return result;
  };
  return { publish, publishAll };
}

interface Batch {
  readonly messages: readonly Message[];
  readonly results: (Stored | AppError)[];
  missing: number;
  /** Begins the last token of its reply subjects. */
  readonly name: number;
  sent: number;
  readonly deadline: number;
  readonly resolve: (results: readonly (Stored | AppError)[]) => void;
}

/** Servers since 2.11 refuse messages of a stream that wait to be stored beyond 10,000, of all publishers. */
const MOST_PENDING = 4_096;

const TEXT_AT_ONCE = 32 * 1024;

/** Counts PubAcks on one inbox: a request of the client takes ten times the processor time. */
class PubAcks {
  /**
   * Batches in the order of their names, from the first that waits. A Map would not do: its discarded tables refer to later ones,
   * and keep their contents until the next full garbage collection.
   */
  readonly #batches: (Batch | undefined)[] = [];
  #firstName = 1;
  readonly #unsent: Batch[] = [];
  #pending = 0;
  #scheduled = false;
  readonly #inbox: string;
  /** The messages of a batch mostly have the same headers. */
  #headers: { readonly of: Message["headers"]; readonly lines: string } = { of: undefined, lines: "" };
  #text = "";
  #subscribed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly connection: NatsConnection,
    private readonly options: PublisherOptions,
  ) {
    this.#inbox = `${newInbox(connection)}.`;
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
    for (let [first] = this.#unsent; first && this.#pending < MOST_PENDING; [first] = this.#unsent) {
      this.#publish(first, first.sent++, now);
      if (first.sent === first.messages.length) this.#unsent.shift();
    }
    this.#writeText();
    this.#watchDeadlines();
  }

  #publish(batch: Batch, index: number, now: number): void {
    const message = batch.messages[index] as Message;
    if (index === 0) this.#batches.push(batch);
    this.#pending++;
    try {
      if (batch.deadline <= now) throw NatsError.errorForCode(ErrorCode.Timeout);
      if (!isPlainSubject(message.subject)) throw NatsError.errorForCode(ErrorCode.BadSubject);
      this.#subscribe();
      this.#write(message, `${this.#inbox}${batch.name}-${index}`);
    } catch (error) {
      this.#settle(batch, index, publishError(error, message.subject));
    }
  }

  /** Works as the client's `publish`, which encodes and copies the parts of each message one by one. */
  #write(message: Message, reply: string): void {
    const { subject, body } = message;
    if (this.connection.isClosed()) throw NatsError.errorForCode(ErrorCode.ConnectionClosed);
    const fields = this.#fieldsOf(message);
    const size = Buffer.byteLength(fields);
    const total = size + Buffer.byteLength(body);
    if (total > (this.connection.info?.max_payload ?? total))
      throw NatsError.errorForCode(ErrorCode.MaxPayloadExceeded);
    this.#text += `HPUB ${subject} ${reply} ${size} ${total}\r\n${fields}`;
    if (typeof body === "string") this.#text += body;
    else {
      this.#writeText();
      sendBytes(this.connection, body);
    }
    this.#text += "\r\n";
    if (this.#text.length > TEXT_AT_ONCE) this.#writeText();
  }

  #writeText(): void {
    if (this.#text !== "") sendBytes(this.connection, Buffer.from(this.#text));
    this.#text = "";
  }

  #fieldsOf({ id, headers, stream }: Message): string {
    if (this.#headers.of !== headers) this.#headers = { of: headers, lines: linesOf(headers) };
    const named = stream === undefined ? "" : fieldOf("Nats-Expected-Stream", stream);
    return `NATS/1.0\r\n${this.#headers.lines}${fieldOf("Nats-Msg-Id", id)}${named}\r\n`;
  }

  #settle(batch: Batch, index: number, result: Stored | AppError): void {
    if (result instanceof AppError && publishRefusal(result) === "missing") this.options.noStream?.();
    batch.results[index] = result;
    this.#pending--;
    if (--batch.missing === 0) {
      this.#forget(batch);
      batch.resolve(batch.results);
    }
    if (this.#unsent.length > 0) this.#schedule();
  }

  #forget({ name }: Batch): void {
    this.#batches[name - this.#firstName] = undefined;
    const waiting = this.#batches.findIndex((batch) => batch !== undefined);
    const settled = waiting < 0 ? this.#batches.length : waiting;
    this.#batches.splice(0, settled);
    this.#firstName += settled;
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
    const { subject } = message;
    const between = subject.lastIndexOf("-");
    const batch = this.#batches[Number(subject.slice(this.#inbox.length, between)) - this.#firstName];
    const index = Number(subject.slice(between + 1));
    if (!batch || !isPending(batch, index)) return;
    this.#settle(batch, index, resultOf(message, (batch.messages[index] as Message).subject));
  }

  #fail(isConcerned: (subject: string, batch: Batch) => boolean, error: NatsError): void {
    for (const batch of [...this.#batches])
      for (let index = 0; batch && index < batch.sent; index++) {
        const { subject } = batch.messages[index] as Message;
        if (isPending(batch, index) && isConcerned(subject, batch))
          this.#settle(batch, index, publishError(error, subject));
      }
  }

  #watchDeadlines(): void {
    const [first] = this.#batches;
    if (this.#timer || !first) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        const now = performance.now();
        this.#fail((_, { deadline }) => deadline <= now, NatsError.errorForCode(ErrorCode.Timeout));
        this.#watchDeadlines();
      },
      Math.max(0, first.deadline - performance.now()),
    );
    this.#timer.unref();
  }

  /** The inbox gets no PubAck and no error if the right to publish is missing. */
  async #followDenials(): Promise<void> {
    for await (const status of this.connection.status()) {
      const { permissionContext: denied } = status as Status & {
        readonly permissionContext?: { readonly operation: string; readonly subject: string };
      };
      if (denied?.operation !== "publish") continue;
      const error = NatsError.errorForCode(ErrorCode.PermissionsViolation);
      this.#fail((subject) => subject === denied.subject, error);
    }
  }
}

const isPending = ({ results, sent }: Batch, index: number): boolean => index < sent && results[index] === undefined;

const HEADER_NAME = /^[!-9;-~]+$/;
const LINE_BREAK = /[\r\n]/;

function linesOf(headers: Message["headers"]): string {
  let lines = "";
  for (const name in headers) {
    if (!HEADER_NAME.test(name)) throw NatsError.errorForCode(ErrorCode.BadHeader);
    lines += fieldOf(name, headers[name] as string);
  }
  return lines;
}

function fieldOf(name: string, value: string): string {
  if (LINE_BREAK.test(value)) throw NatsError.errorForCode(ErrorCode.BadHeader);
  return `${name}: ${value}\r\n`;
}

function resultOf(message: Msg, subject: string): Stored | AppError {
  try {
    // No stream takes the subject: the server answers with a status and no body.
    if (message.data.length === 0) throw NatsError.errorForCode(ErrorCode.NoResponders);
    const { error: refusal, stream, seq, duplicate = false } = JSON.parse(message.string()) as PubAck;
    if (refusal) throw Object.assign(new NatsError(refusal.description, String(refusal.code)), { api_error: refusal });
    // Clustered 2.10 servers may answer "duplicate" for a message they have not stored (nats-server#6415).
    if (duplicate && seq === 0) throw new AppError("unavailable", `${subject}: the id is still in process`);
    return { stream, seq, duplicate };
  } catch (error) {
    return publishError(error, subject);
  }
}
