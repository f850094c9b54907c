import { DLQ_HEADER, type DlqReason, dlqSubject } from "../contracts/subjects.js";
import { codeOf, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Delivery } from "./handler.js";

/** A message for the DLQ, ready to publish. */
export interface DeadLetter {
  readonly subject: string;
  /** `Nats-Msg-Id`: one dead letter for one failed message, however often it is written. */
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Resolves only after the PubAck of the DLQ. */
export type StoreDeadLetter = (deadLetter: DeadLetter) => Promise<void>;

export interface Failure {
  readonly reason: DlqReason;
  readonly error: unknown;
  /** The event the dead letter is about, `fanout_job` for a chunk. */
  readonly event: string;
  readonly version: string;
  readonly now: number;
}

/** The dead letter of a message that a consumer gave up. */
export function deadLetterOf(delivery: Delivery, attempts: number, failure: Failure): DeadLetter {
  const { headers, stream, seq, time, consumer, subject, body } = delivery;
  return {
    subject: dlqSubject(failure.reason, failure.event),
    // The time tells apart messages of equal number of a stream that was made anew.
    id: `dlq:${stream}:${seq}:${time}`,
    body,
    headers: {
      ...carried(delivery),
      ...common(failure),
      [DLQ_HEADER.stream]: stream,
      [DLQ_HEADER.streamSeq]: String(seq),
      [DLQ_HEADER.consumer]: consumer,
      [DLQ_HEADER.subject]: subject,
      [DLQ_HEADER.deliveries]: String(attempts),
      [DLQ_HEADER.firstSeen]: headers.get(DLQ_HEADER.firstSeen) ?? new Date(time).toISOString(),
      [DLQ_HEADER.msgId]: headers.get("Nats-Msg-Id") ?? "",
      [DLQ_HEADER.redriveCount]: headers.get(DLQ_HEADER.redriveCount) ?? "0",
    },
  };
}

/** An event that never became a message of a stream. */
export interface Unstored {
  /** `Nats-Msg-Id` of the dead letter. */
  readonly id: string;
  /** The channel it came from, or the subject it was for. */
  readonly origin: string;
  readonly body: Uint8Array;
  readonly deliveries: number;
  /** In ms since the epoch. */
  readonly firstSeen: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A body that is too large is cut to this. */
const CUT_BYTES = 64 * 1024;

/** The dead letter of an event that never became a message. */
export function deadLetterOfUnstored(unstored: Unstored, failure: Failure): DeadLetter {
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

/** Trace context and user headers go along; the broker's own would change what the dead letter does. */
function carried({ headers }: Delivery): Record<string, string> {
  return Object.fromEntries([...headers.entries()].filter(([name]) => !/^(nats|dlq)-/i.test(name)));
}
