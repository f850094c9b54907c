import { DLQ_HEADER } from "../../contracts/subjects.js";
import type { Delivery } from "../../delivery/handler.js";

/** The stream DLQ holds a dead letter in this form. Times are in ms since the epoch. */
export type StoredDeadLetter = ReturnType<typeof parseDeadLetter>;
export type DeadLetterSummary = StoredDeadLetter["summary"];

/** The stream DLQ. Errors are AppError `unavailable`. */
export interface DeadLetterStore {
  /** Reads what the stream holds at the time of the call, oldest first; bodies are empty unless asked for. */
  read(range?: { readonly after?: number | undefined; readonly bodies?: boolean }): AsyncIterable<StoredDeadLetter>;
  find(seq: number): Promise<StoredDeadLetter | undefined>;
  /** Does nothing if the message is gone. */
  remove(seq: number): Promise<void>;
}

/** Headers that another writer left out are replaced by the subject and the time in the stream. */
export function parseDeadLetter(message: Pick<Delivery, "seq" | "subject" | "time" | "headers" | "body">) {
  const { seq, subject, time: storedAt, headers, body } = message;
  const [, reason = "", ...event] = subject.split(".");
  const dateOf = (name: string): number => {
    const time = Date.parse(headers.get(name) ?? "");
    return Number.isNaN(time) ? storedAt : time;
  };
  const firstSeenAt = dateOf(DLQ_HEADER.firstSeen);
  const failedAt = dateOf(DLQ_HEADER.failedAt);
  // The list shows this JSON. Dates are RFC 3339; null stands for a missing header.
  const summary = {
    seq,
    reason: headers.get(DLQ_HEADER.reason) ?? reason,
    event: event.join("."),
    error: headers.get(DLQ_HEADER.error) ?? "",
    error_code: headers.get(DLQ_HEADER.errorCode) ?? "",
    stream: headers.get(DLQ_HEADER.stream) ?? null,
    stream_seq: wholeNumber(headers.get(DLQ_HEADER.streamSeq)),
    consumer: headers.get(DLQ_HEADER.consumer) ?? null,
    deliveries: wholeNumber(headers.get(DLQ_HEADER.deliveries)),
    first_seen: new Date(firstSeenAt).toISOString(),
    failed_at: new Date(failedAt).toISOString(),
    redrive_count: wholeNumber(headers.get(DLQ_HEADER.redriveCount)) ?? 0,
  };
  // The origin is the subject of the failed message, or the Redis channel of a payload that a bridge refused.
  const origin = headers.get(DLQ_HEADER.subject) ?? "";
  return { summary, subject, origin, firstSeenAt, failedAt, storedAt, headers, body };
}

const wholeNumber = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null;

/** Returns the JSON of one dead letter; `body_encoding` is `json`, `utf8` or `base64`. */
export function deadLetterAsJson(deadLetter: StoredDeadLetter): Record<string, unknown> {
  const { value, text } = decodeBody(deadLetter.body);
  const body =
    value !== undefined
      ? { body_encoding: "json", body: value }
      : text !== undefined
        ? { body_encoding: "utf8", body: text }
        : { body_encoding: "base64", body: Buffer.from(deadLetter.body).toString("base64") };
  return {
    ...deadLetter.summary,
    subject: deadLetter.subject,
    stored_at: new Date(deadLetter.storedAt).toISOString(),
    headers: Object.fromEntries(deadLetter.headers.entries()),
    size: deadLetter.body.byteLength,
    ...body,
  };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** `text` is unset if the body is not UTF-8, `value` if it is not JSON. */
export function decodeBody(body: Uint8Array): { value?: unknown; text?: string } {
  let text: string;
  try {
    text = utf8.decode(body);
  } catch {
    return {};
  }
  try {
    return { text, value: JSON.parse(text) as unknown };
  } catch {
    return { text };
  }
}
