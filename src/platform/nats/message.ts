import { ErrorCode, type JsMsg, millis, type NatsConnection, NatsError, type StoredMsg } from "nats";
import type { JsMsgImpl } from "nats/lib/jetstream/jsmsg.js";
import type { MsgHdrsImpl } from "nats/lib/nats-base-client/headers.js";
import type { MsgImpl } from "nats/lib/nats-base-client/msg.js";
import type { ProtocolHandler } from "nats/lib/nats-base-client/protocol.js";
import type { Delivery, Headers } from "../../delivery/handler.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";

export function deliveryOf(message: JsMsg): Delivery {
  const { info } = message;
  return {
    stream: info.stream,
    consumer: info.consumer,
    seq: info.streamSequence,
    time: millis(info.timestampNanos),
    subject: message.subject,
    headers: headersOf(message),
    body: message.data,
    deliveries: info.redeliveryCount,
  };
}

const beneath = (message: JsMsg): MsgImpl => (message as JsMsgImpl).msg as MsgImpl;

/** Acks of several messages in one command: the client encodes and copies three parts of each. */
export function ackAll(messages: readonly JsMsg[]): void {
  const [first] = messages;
  if (!first) return;
  const commands = messages.map((message) => `PUB ${beneath(message).reply} 4\r\n+ACK\r\n`);
  (beneath(first).publisher as ProtocolHandler).sendCommand(Buffer.from(commands.join("")));
}

export function headersOf(message: JsMsg): Headers {
  const { _rdata: bytes, _msg: from } = beneath(message);
  return new HeaderLines(() => Buffer.from(bytes.buffer, bytes.byteOffset, Math.max(0, from.hdr)).toString());
}

const NAMES = /\r\n([!-9;-~]+):/g;
const LINE_BREAK = /[\r\n]/;

/**
 * The client takes as long to read all headers into a map as for the rest of the message, and throws where one is
 * malformed, which servers and other clients take. Such a header is none here.
 */
class HeaderLines implements Headers {
  #text: string | undefined;

  constructor(private readonly read: () => string) {}

  get(name: string): string | undefined {
    this.#text ??= this.read();
    const line = `\r\n${name}:`;
    const at = this.#text.indexOf(line);
    if (at < 0) return undefined;
    const from = at + line.length;
    const value = this.#text.slice(from, this.#text.indexOf("\r\n", from)).trim();
    return value === "" || LINE_BREAK.test(value) ? undefined : value;
  }

  *entries(): Generator<readonly [string, string]> {
    this.#text ??= this.read();
    const names = new Set(Array.from(this.#text.matchAll(NAMES), ([, name = ""]) => name));
    for (const name of names) yield [name, this.get(name) ?? ""];
  }
}

interface Fields {
  readonly id: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly stream?: string | undefined;
}

const HEADER_NAME = /^[!-9;-~]+$/;

/** The headers of a message as they are sent. */
export function fieldsOf({ id, headers, stream }: Fields): string {
  let fields = "NATS/1.0\r\n";
  for (const name in headers) fields += fieldOf(name, headers[name] as string);
  fields += fieldOf("Nats-Msg-Id", id);
  if (stream !== undefined) fields += fieldOf("Nats-Expected-Stream", stream);
  return `${fields}\r\n`;
}

function fieldOf(name: string, value: string): string {
  if (!HEADER_NAME.test(name) || LINE_BREAK.test(value)) throw NatsError.errorForCode(ErrorCode.BadHeader);
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
  const headers = new HeaderLines(() => textOf(stored));
  return { stream, seq, subject, headers, body, time: time.getTime() };
}

function textOf(stored: StoredMsg): string {
  try {
    return (stored.header as MsgHdrsImpl).toString();
  } catch {
    return "";
  }
}
