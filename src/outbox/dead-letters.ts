import { DLQ_HEADER } from "../contracts/dead-letters.js";
import { EVENT_NAMES, SUBJECT_OF } from "../contracts/events.js";
import { type DlqReason, STREAM, WORK_EVENTS } from "../contracts/subjects.js";
import { type DeadLetters, letterOfUnstored } from "../delivery/dead-letter.js";
import { fingerprint } from "../kernel/ids.js";
import type { OutboxEvent } from "./ports.js";

/** Why an event of an outbox is given up. */
export interface GivenUp {
  readonly reason: DlqReason;
  readonly error: unknown;
  /** How often NATS has refused it. */
  readonly refusals: number;
}

/** Stores the dead letter of an event; resolves after its PubAck. */
export type DeadLetterEvent = (event: OutboxEvent, why: GivenUp) => Promise<void>;

/** The name of an event under a subject no stream of ours takes. */
const UNKNOWN = { event: "outbox_event", stream: undefined };

/** What a dead letter calls an event, and the stream it was for, to which a redrive returns it. */
function destinationOf(subject: string): { readonly event: string; readonly stream: string | undefined } {
  const name = EVENT_NAMES.find((one) => SUBJECT_OF[one] === subject);
  if (name !== undefined) return { event: name, stream: STREAM.drops };
  for (const stream of [STREAM.edges, STREAM.engagement])
    if (subject.startsWith(`${stream.toLowerCase()}.`)) return { event: WORK_EVENTS[stream], stream };
  return UNKNOWN;
}

/** Makes what dead-letters events of the outbox of a service; one event has one letter, however often it is written. */
export function createDeadLetterEvent(options: {
  readonly source: string;
  readonly deadLetters: DeadLetters;
  readonly version: string;
}): DeadLetterEvent {
  const { source, deadLetters, version } = options;
  return async ({ id, subject, messageId, body, traceparent, createdAt }, { reason, error, refusals }) => {
    const { event, stream } = destinationOf(subject);
    const unstored = {
      id: `dlq:outbox:${source}:${id}:${createdAt}:${fingerprint(messageId)}`,
      origin: subject,
      body: Buffer.from(body),
      deliveries: refusals,
      firstSeen: createdAt,
      headers: {
        [DLQ_HEADER.msgId]: messageId,
        ...(stream === undefined ? {} : { [DLQ_HEADER.stream]: stream }),
        ...(traceparent == null ? {} : { traceparent }),
      },
    };
    await deadLetters(letterOfUnstored(unstored, { reason, error, event, version, now: Date.now() }));
  };
}
