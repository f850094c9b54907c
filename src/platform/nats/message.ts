import { ErrorCode, type JsMsg, type NatsConnection, NatsError, type StoredMsg } from "nats";
import type { JsMsgImpl } from "nats/lib/jetstream/jsmsg.js";
import type { MsgHdrsImpl } from "nats/lib/nats-base-client/headers.js";
import type { MsgImpl } from "nats/lib/nats-base-client/msg.js";
import type { ProtocolHandler } from "nats/lib/nats-base-client/protocol.js";
import type { Delivery, Headers } from "../../delivery/handler.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";

/** The consumer that a message was pulled from. */
interface Source {
  readonly stream: string;
  readonly consumer: string;
}

const DOT = 46;
const DIGIT_0 = 48;
/** Digits of a time in ns that are below a ms. */
const BELOW_MS = 6;
/** Where the number of deliveries stands; newer servers name domain and account before the stream. */
const AT = { old: 4, domain: 6 };
const DOTS_OLD = 8;
const dots = new Uint16Array(16);

/** The client splits the reply subject into eleven strings, and keeps eleven fields a message. */
export function deliveryOf(message: JsMsg, { stream, consumer }: Source): Delivery {
  const reply = coreMessageOf(message)._msg.reply ?? NO_REPLY;
  let found = 0;
  for (let at = 0; at < reply.length; at++) if (reply[at] === DOT) dots[found++] = at;
  if (found < DOTS_OLD) throw new Error(`${message.subject}: no consumer delivered this message`);
  const first = found === DOTS_OLD ? AT.old : AT.domain;
  return {
    stream,
    consumer,
    seq: numberAt(reply, first + 1),
    time: numberAt(reply, first + 3, BELOW_MS),
    subject: message.subject,
    headers: headersOf(message),
    body: message.data,
    deliveries: numberAt(reply, first),
  };
}

const NO_REPLY = new Uint8Array();

/** In the token after so many dots, without its last digits. */
const numberAt = (reply: Uint8Array, token: number, digitsLeftOut = 0): number =>
  numberIn(reply, (dots[token - 1] as number) + 1, (dots[token] as number) - digitsLeftOut);

/** Decimal digits, without the string that `Number` would need. */
export function numberIn(digits: Uint8Array, from: number, end: number): number {
  let value = 0;
  for (let at = from; at < end; at++) value = value * 10 + (digits[at] as number) - DIGIT_0;
  return value;
}

const coreMessageOf = (message: JsMsg): MsgImpl => (message as JsMsgImpl).msg as MsgImpl;

/** Acks of several messages in one command: the client encodes and copies three parts of each. */
export function ackAll(messages: readonly JsMsg[]): void {
  const [first] = messages;
  if (!first) return;
  const commands = messages.map((message) => `PUB ${coreMessageOf(message).reply} 4\r\n+ACK\r\n`);
  (coreMessageOf(first).publisher as ProtocolHandler).sendCommand(Buffer.from(commands.join("")));
}

export function headersOf(message: JsMsg): Headers {
  const { _rdata: bytes, _msg: from } = coreMessageOf(message);
  return new HeaderLines(bytes, Math.max(0, from.hdr));
}

const NAMES = /\r\n([!-9;-~]+):/g;
const LINE_BREAK = /[\r\n]/;

/**
 * The client takes as long to read all headers into a map as for the rest of the message, and throws where one is
 * malformed, which servers and other clients accept. Such a header is left out here.
 */
class HeaderLines implements Headers {
  #text: string | undefined;

  constructor(
    private readonly bytes: Uint8Array,
    private readonly size: number,
  ) {}

  get(name: string): string | undefined {
    const text = this.#read();
    const end = name.length;
    for (let at = text.indexOf(name); at >= 0; at = text.indexOf(name, at + end)) {
      if (text[at - 1] !== "\n" || text[at - 2] !== "\r" || text[at + end] !== ":") continue;
      const from = at + end + 1;
      const value = text.slice(from, text.indexOf("\r\n", from)).trim();
      return value === "" || LINE_BREAK.test(value) ? undefined : value;
    }
    return undefined;
  }

  *entries(): Generator<readonly [string, string]> {
    const names = new Set(Array.from(this.#read().matchAll(NAMES), ([, name = ""]) => name));
    for (const name of names) yield [name, this.get(name) ?? ""];
  }

  #read(): string {
    const { buffer, byteOffset } = this.bytes;
    this.#text ??= Buffer.from(buffer, byteOffset, this.size).toString();
    return this.#text;
  }
}

interface Fields {
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly stream?: string | undefined;
}

const HEADER_NAME = /^[!-9;-~]+$/;

/** The messages of a batch mostly have the same ones. */
let latest: { readonly headers: Fields["headers"]; readonly lines: string } = { headers: undefined, lines: "" };

/** The headers of a message as they are sent. */
export function fieldsOf({ id, headers, stream }: Fields): string {
  if (latest.headers !== headers) latest = { headers, lines: linesOf(headers) };
  const named = stream === undefined ? "" : fieldOf("Nats-Expected-Stream", stream);
  return `NATS/1.0\r\n${latest.lines}${fieldOf("Nats-Msg-Id", id)}${named}\r\n`;
}

function linesOf(headers: Fields["headers"]): string {
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

export type StoredMessage = Omit<Delivery, "consumer" | "deliveries">;

/** Everything rejects with AppError `unavailable`. */
export interface StoredMessages {
  read(stream: string, seq: number): Promise<StoredMessage | undefined>;
  /** The first from `seq` on; the subject may have wildcards. */
  next(stream: string, subject: string, seq: number): Promise<StoredMessage | undefined>;
  remove(stream: string, seq: number): Promise<void>;
}

export function createStoredMessages(connection: NatsConnection): StoredMessages {
  // Servers know `next_by_subj` since 2.9; the client's types do not.
  const get = (stream: string, query: { seq: number; next_by_subj?: string }): Promise<StoredMessage | undefined> =>
    askNats(`a message of ${stream}`, async () => {
      const { streams } = await managerOf(connection);
      const found = await unlessAbsent(streams.getMessage(stream, query), "message");
      return found && storedOf(stream, found);
    });
  return {
    read: (stream, seq) => get(stream, { seq }),
    next: (stream, subject, seq) => get(stream, { seq, next_by_subj: subject }),
    async remove(stream, seq) {
      try {
        await askNats(`removing a message of ${stream}`, async () =>
          (await managerOf(connection)).streams.deleteMessage(stream, seq, false),
        );
      } catch (error) {
        // Servers answer in several ways where it is gone already.
        if (await get(stream, { seq })) throw error;
      }
    },
  };
}

function storedOf(stream: string, stored: StoredMsg): StoredMessage {
  const { seq, subject, data: body, time } = stored;
  const lines = Buffer.from(textOf(stored));
  const headers = new HeaderLines(lines, lines.length);
  return { stream, seq, subject, headers, body, time: time.getTime() };
}

function textOf(stored: StoredMsg): string {
  try {
    return (stored.header as MsgHdrsImpl).toString();
  } catch {
    return "";
  }
}
