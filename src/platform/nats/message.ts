import { type JsMsg, millis, type NatsConnection, type StoredMsg } from "nats";
import type { Delivery } from "../../delivery/handler.js";
import type { Headers } from "../../telemetry/spans.js";
import { askNats, managerOf, unlessAbsent } from "./ask.js";
import { headOf } from "./wire.js";

interface Source {
  readonly stream: string;
  readonly consumer: string;
}

export function deliveryOf(message: JsMsg, { stream, consumer }: Source): Delivery {
  const { streamSequence: seq, timestampNanos, deliveryCount: deliveries } = message.info;
  const { subject, data: body } = message;
  return {
    stream,
    consumer,
    seq,
    time: millis(timestampNanos),
    subject,
    headers: headersOf(message),
    body,
    deliveries,
  };
}

export const headersOf = (message: JsMsg): Headers => new HeaderLines(() => headOf(message));

const NAMES = /\r\n([!-9;-~]+):/g;
const LINE_BREAK = /[\r\n]/;

/**
 * The client is slow to read headers into a map, and throws if one is malformed, which servers accept. A malformed header
 * is left out here.
 */
class HeaderLines implements Headers {
  #text: string | undefined;

  constructor(private readonly read: () => string) {}

  get(name: string): string | undefined {
    const text = this.#lines();
    const end = name.length;
    for (let index = text.indexOf(name); index >= 0; index = text.indexOf(name, index + end)) {
      if (text[index - 1] !== "\n" || text[index - 2] !== "\r" || text[index + end] !== ":") continue;
      const from = index + end + 1;
      const value = text.slice(from, text.indexOf("\r\n", from)).trim();
      return value === "" || LINE_BREAK.test(value) ? undefined : value;
    }
    return undefined;
  }

  *entries(): Generator<readonly [string, string]> {
    const names = new Set(Array.from(this.#lines().matchAll(NAMES), ([, name = ""]) => name));
    for (const name of names) yield [name, this.get(name) ?? ""];
  }

  #lines(): string {
    this.#text ??= this.read();
    return this.#text;
  }
}

export type StoredMessage = Omit<Delivery, "consumer" | "deliveries">;

export type StoredMessages = ReturnType<typeof createStoredMessages>;

/** Everything rejects with AppError `unavailable`. */
export function createStoredMessages(connection: NatsConnection) {
  // Servers know `next_by_subj` since 2.9; the client's types do not.
  const get = (stream: string, query: { seq: number; next_by_subj?: string }): Promise<StoredMessage | undefined> =>
    askNats(`a message of ${stream}`, async () => {
      const { streams } = await managerOf(connection);
      const message = await unlessAbsent(streams.getMessage(stream, query), "message");
      return message && storedOf(stream, message);
    });
  /** Returns the first from `seq` on; the subject may have wildcards. */
  const next = (stream: string, subject: string, seq: number) => get(stream, { seq, next_by_subj: subject });
  return {
    read: (stream: string, seq: number) => get(stream, { seq }),
    next,
    /** Reads from `seq` on, one by one: a work queue admits no second consumer. */
    async *each(stream: string, subject: string, seq: number): AsyncGenerator<StoredMessage> {
      let message = await next(stream, subject, seq);
      for (; message !== undefined; message = await next(stream, subject, message.seq + 1)) yield message;
    },
    async remove(stream: string, seq: number): Promise<void> {
      try {
        await askNats(`removing a message of ${stream}`, async () =>
          (await managerOf(connection)).streams.deleteMessage(stream, seq, false),
        );
      } catch (error) {
        // Servers answer in several ways if it is gone already.
        if (await get(stream, { seq })) throw error;
      }
    },
  };
}

function storedOf(stream: string, stored: StoredMsg): StoredMessage {
  const { seq, subject, data: body, time } = stored;
  return { stream, seq, subject, headers: new HeaderLines(() => storedHeadOf(stored)), body, time: time.getTime() };
}

/** Returns the head as text, since the client throws if a header is malformed. */
function storedHeadOf(stored: StoredMsg): string {
  try {
    const lines = [...stored.header].flatMap(([name, values]) => values.map((value) => `\r\n${name}: ${value}`));
    return `${lines.join("")}\r\n\r\n`;
  } catch {
    return "";
  }
}
