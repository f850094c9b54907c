import { DLQ_HEADER } from "../contracts/dead-letters.js";
import {
  EVENT_NAMES,
  type EventName,
  eventOfSubject,
  messageId,
  parseEvent,
  SUBJECT_OF,
  type TimelineEvent,
} from "../contracts/events.js";
import { parseJob } from "../contracts/jobs.js";
import { SILENT_HEADER } from "../contracts/silence.js";
import { isPlainSubject, STREAM } from "../contracts/subjects.js";
import { NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { AppError } from "../kernel/errors.js";
import type { Letter } from "./dead-letter.js";

/** A message as it goes back to work. */
export interface Redriven {
  readonly subject: string;
  /** The only stream that may store it. */
  readonly stream: string;
  /** `Nats-Msg-Id`. */
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/**
 * Where a letter goes back to, and as what.
 *
 * @param now in ms since the epoch: what was invalid is validated as if it arrived now.
 * @throws AppError `invalid`, saying why it cannot go anywhere.
 */
export function destinationOf(letter: Letter, now: number): Redriven {
  const { reason, stream } = letter.listed;
  if (reason === "toolarge")
    throw new AppError("invalid", "only its beginning was kept: publish the event again, in a message that fits");
  if (stream === null) return admission(letter, now);
  if (!isPlainSubject(letter.origin))
    throw new AppError("invalid", `"${letter.origin}" is no subject to publish it to again`);
  if (reason === "invalid") validateAgain(letter, now);
  const { seq, redrive_count, first_seen } = letter.listed;
  return {
    subject: letter.origin,
    stream,
    // Another id than before, or the stream would take it for what it already has; the same one for the
    // same redrive, so that one that was interrupted after the publishing is published once only.
    id: `redrive:${seq}:${first_seen}:${redrive_count + 1}`,
    headers: headersOf(letter, now),
    body: letter.body,
  };
}

/** A payload of the bridge never was a message: it is admitted as if it arrived now. */
function admission(letter: Letter, now: number): Redriven {
  const channel = channelOf(letter.origin);
  if (letter.listed.reason !== "invalid" || channel === undefined)
    throw new AppError("invalid", "it names no stream to go back to");
  const event = parseEvent(channel, letter.body, now);
  return {
    subject: SUBJECT_OF[channel],
    stream: STREAM.drops,
    id: messageId(event),
    headers: { ...traceOf(event), ...headersOf(letter, now) },
    body: Buffer.from(JSON.stringify(event.payload)),
  };
}

const channelOf = (origin: string): EventName | undefined => EVENT_NAMES.find((name) => name === origin);

function traceOf({ payload }: TimelineEvent): Record<string, string> {
  return payload.traceparent !== undefined && /^[\da-f-]+$/.test(payload.traceparent)
    ? { traceparent: payload.traceparent }
    : {};
}

function validateAgain({ listed, origin, body }: Letter, now: number): void {
  if (listed.stream === STREAM.drops) parseEvent(eventOfSubject(origin), body, now);
  if (listed.stream === STREAM.fanout) parseJob(body);
}

/** What the letter carried for others goes along, and what it must remember. */
function headersOf({ headers, listed, firstSeenAt }: Letter, now: number): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of headers.entries()) if (!/^(nats|dlq)-/i.test(name)) kept[name] = value;
  return {
    ...kept,
    [DLQ_HEADER.firstSeen]: listed.first_seen,
    [DLQ_HEADER.redriveCount]: String(listed.redrive_count + 1),
    ...(now - firstSeenAt > NOTIFY_WINDOW_MS ? { [SILENT_HEADER]: "1" } : {}),
  };
}
