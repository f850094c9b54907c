import { DLQ_HEADER, type DlqEvent, type DlqReason, dlqSubject } from "../contracts/subjects.js";
import { codeOf, oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Headers } from "../telemetry/spans.js";
import type { Delivery } from "./handler.js";

export interface DeadLetter {
  readonly subject: string;
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Resolves only after the PubAck of the DLQ. */
export type StoreDeadLetter = (deadLetter: DeadLetter) => Promise<unknown>;

export interface Failure {
  readonly reason: DlqReason;
  readonly error: unknown;
  /** The event of a chunk is `fanout_job`. */
  readonly event: DlqEvent;
  readonly version: string;
  readonly now: number;
}

export function deadLetterOf(delivery: Delivery, attempts: number, failure: Failure): DeadLetter {
  const { headers, stream, seq, time, consumer, subject, body } = delivery;
  return {
    subject: dlqSubject(failure.reason, failure.event),
    // A stream that is made anew counts from 1 again: the time tells its messages from those before.
    id: `dlq:${stream}:${seq}:${time}`,
    body,
    headers: {
      ...carried(headers),
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
interface Unstored {
  readonly id: string;
  /** The event came from this channel, or was for this subject. */
  readonly origin: string;
  readonly body: Uint8Array;
  readonly deliveries: number;
  readonly firstSeen: number;
  readonly headers?: Readonly<Record<string, string>>;
}

const CUT_BYTES = 64 * 1024;
const MAX_HEADER_CHARACTERS = 1_024;

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

/**
 * A message may be so large that the headers of its dead letter find no room. It is kept without its own headers then, and
 * a long body is cut, or it would never leave its consumer.
 */
export const cutWhereTooLarge =
  (store: StoreDeadLetter): StoreDeadLetter =>
  async (deadLetter) => {
    try {
      return await store(deadLetter);
    } catch (error) {
      if (codeOf(error) !== "invalid") throw error;
      return store(cut(deadLetter));
    }
  };

function cut({ headers: all, body, subject, id }: DeadLetter): DeadLetter {
  const dlqHeaders = Object.entries(all).filter(([name]) => /^dlq-/i.test(name));
  const headers = Object.fromEntries(dlqHeaders.map(([name, value]) => [name, value.slice(0, MAX_HEADER_CHARACTERS)]));
  if (body.byteLength <= CUT_BYTES) return { subject, id, headers, body };
  const reason: DlqReason = "toolarge";
  return {
    subject: subject.replace(/^dlq\.\w+/, `dlq.${reason}`),
    id,
    headers: { ...headers, [DLQ_HEADER.reason]: reason, [DLQ_HEADER.size]: String(body.byteLength) },
    body: body.subarray(0, CUT_BYTES),
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

/** The result is printable ASCII, because clients disagree about other characters. */
function headerSafe(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]+/g, (part) => encodeId(part)).slice(0, MAX_HEADER_CHARACTERS);
}

/** The broker's own headers would change the effect of the dead letter. */
export function carried(headers: Headers): Record<string, string> {
  return Object.fromEntries([...headers.entries()].filter(([name]) => !/^(nats|dlq)-/i.test(name)));
}
