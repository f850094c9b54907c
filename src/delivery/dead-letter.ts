import { DLQ_HEADER } from "../contracts/dead-letters.js";
import { type DlqReason, dlqSubject } from "../contracts/subjects.js";
import { codeOf, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Delivery } from "./handler.js";

/** A message for the DLQ, ready to publish. */
export interface DeadLetter {
  readonly subject: string;
  /** `Nats-Msg-Id`: one letter for one failed message, however often it is written. */
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Stores a letter; resolves only after its PubAck. */
export type DeadLetters = (letter: DeadLetter) => Promise<void>;

/** What is known of a failure, wherever it happened. */
export interface Failure {
  readonly reason: DlqReason;
  readonly error: unknown;
  /** The event the letter is about, `fanout_job` for a chunk. */
  readonly event: string;
  readonly version: string;
  readonly now: number;
}

/** The dead letter of a message that a consumer gave up. */
export function letterOf(delivery: Delivery, attempts: number, failure: Failure): DeadLetter {
  const firstSeen = delivery.headers.get(DLQ_HEADER.firstSeen) ?? new Date(delivery.time).toISOString();
  return {
    subject: dlqSubject(failure.reason, failure.event),
    // The time tells apart messages of equal number of a stream that was made anew.
    id: `dlq:${delivery.stream}:${delivery.seq}:${delivery.time}`,
    body: delivery.body,
    headers: {
      ...carried(delivery),
      ...common(failure),
      [DLQ_HEADER.stream]: delivery.stream,
      [DLQ_HEADER.streamSeq]: String(delivery.seq),
      [DLQ_HEADER.consumer]: delivery.consumer,
      [DLQ_HEADER.subject]: delivery.subject,
      [DLQ_HEADER.deliveries]: String(attempts),
      [DLQ_HEADER.firstSeen]: firstSeen,
      [DLQ_HEADER.msgId]: delivery.headers.get("Nats-Msg-Id") ?? "",
      [DLQ_HEADER.redriveCount]: delivery.headers.get(DLQ_HEADER.redriveCount) ?? "0",
    },
  };
}

/** What never became a message of a stream. */
export interface Unstored {
  /** `Nats-Msg-Id` of the letter. */
  readonly id: string;
  /** The channel it came from, or the subject it was for. */
  readonly origin: string;
  readonly body: Uint8Array;
  readonly deliveries: number;
  /** In ms since the epoch. */
  readonly firstSeen: number;
  /** Other headers of the letter. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** So much of a body that is too large goes into its letter. */
const CUT_BYTES = 64 * 1024;

/** The dead letter of what never became a message. One that is too large is cut. */
export function letterOfUnstored(unstored: Unstored, failure: Failure): DeadLetter {
  const { id, origin, body, deliveries, firstSeen, headers } = unstored;
  const cut = failure.reason === "toolarge";
  return {
    subject: dlqSubject(failure.reason, failure.event),
    id,
    body: cut ? body.subarray(0, CUT_BYTES) : body,
    headers: {
      ...Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [name, headerSafe(value)])),
      ...common(failure),
      [DLQ_HEADER.subject]: headerSafe(origin),
      [DLQ_HEADER.deliveries]: String(deliveries),
      [DLQ_HEADER.firstSeen]: new Date(firstSeen).toISOString(),
      [DLQ_HEADER.redriveCount]: "0",
      ...(cut ? { [DLQ_HEADER.size]: String(body.byteLength) } : {}),
    },
  };
}

function common(failure: Failure): Record<string, string> {
  return {
    [DLQ_HEADER.reason]: failure.reason,
    [DLQ_HEADER.error]: headerSafe(oneLine(failure.error)),
    [DLQ_HEADER.errorCode]: codeOf(failure.error),
    [DLQ_HEADER.failedAt]: new Date(failure.now).toISOString(),
    [DLQ_HEADER.version]: failure.version,
  };
}

/** Header values are cut to 1 KiB and to printable ASCII: clients disagree about the rest. */
function headerSafe(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]+/g, (part) => encodeId(part)).slice(0, 1024);
}

/** Trace context and user headers go along; the broker's own would change what the letter does. */
function carried(delivery: Delivery): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of delivery.headers.entries()) {
    if (!/^(nats|dlq)-/i.test(name)) kept[name] = value;
  }
  return kept;
}
