import {
  EVENT_NAMES,
  type EventName,
  eventOfSubject,
  messageId,
  parseEvent,
  SUBJECT_OF,
  type TimelineEvent,
} from "../contracts/events.js";
import { parseJob } from "../contracts/fanout.js";
import { DLQ_HEADER, isPlainSubject, SILENT_HEADER, STREAM } from "../contracts/subjects.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { AppError } from "../kernel/errors.js";
import type { StoredDeadLetter } from "./dead-letter.js";

export interface RedrivenMessage {
  readonly subject: string;
  /** The only stream that may store it. */
  readonly stream: string;
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** An `invalid` payload is validated as if it arrived `now`. @throws AppError `invalid` if it cannot be redriven */
export function destinationOf(deadLetter: StoredDeadLetter, now: number): RedrivenMessage {
  const { reason, stream } = deadLetter.summary;
  if (reason === "toolarge")
    throw new AppError("invalid", "only its beginning was kept: publish the event again, in a message that fits");
  if (stream === null) return admission(deadLetter, now);
  if (!isPlainSubject(deadLetter.origin))
    throw new AppError("invalid", `"${deadLetter.origin}" is no subject to publish it to again`);
  if (reason === "invalid") validateAgain(deadLetter, now);
  const { seq, redrive_count, first_seen } = deadLetter.summary;
  return {
    subject: deadLetter.origin,
    stream,
    // The id differs from the original's, which the stream would take for a duplicate. It is the same for a
    // redrive that is repeated after an interruption, so that the message is stored once.
    id: `redrive:${seq}:${first_seen}:${redrive_count + 1}`,
    headers: headersOf(deadLetter, now),
    body: deadLetter.body,
  };
}

/** A payload that a bridge refused was in no stream: it is admitted as if it arrived now. */
function admission(deadLetter: StoredDeadLetter, now: number): RedrivenMessage {
  const channel = channelOf(deadLetter.origin);
  if (deadLetter.summary.reason !== "invalid" || channel === undefined)
    throw new AppError("invalid", "it names no stream to go back to");
  const event = parseEvent(channel, deadLetter.body, now);
  return {
    subject: SUBJECT_OF[channel],
    stream: STREAM.drops,
    id: messageId(event),
    headers: { ...traceOf(event), ...headersOf(deadLetter, now) },
    body: Buffer.from(JSON.stringify(event.payload)),
  };
}

const channelOf = (origin: string): EventName | undefined => EVENT_NAMES.find((name) => name === origin);

function traceOf({ payload }: TimelineEvent): Record<string, string> {
  return payload.traceparent !== undefined && /^[\da-f-]+$/.test(payload.traceparent)
    ? { traceparent: payload.traceparent }
    : {};
}

function validateAgain({ summary, origin, body }: StoredDeadLetter, now: number): void {
  if (summary.stream === STREAM.drops) parseEvent(eventOfSubject(origin), body, now);
  if (summary.stream === STREAM.fanout) parseJob(body);
}

function headersOf({ headers, summary, firstSeenAt }: StoredDeadLetter, now: number): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of headers.entries()) if (!/^(nats|dlq)-/i.test(name)) kept[name] = value;
  return {
    ...kept,
    [DLQ_HEADER.firstSeen]: summary.first_seen,
    [DLQ_HEADER.redriveCount]: String(summary.redrive_count + 1),
    ...(now - firstSeenAt > NOTIFY_WINDOW_MS ? { [SILENT_HEADER]: "1" } : {}),
  };
}
