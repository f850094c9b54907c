import { channelOf, streamOf } from "../contracts/channels.js";
import type { OutboxEvent } from "../contracts/outbox.js";
import { DLQ_HEADER, type DlqEvent, type DlqReason, STREAM, WORK_EVENTS } from "../contracts/subjects.js";
import { deadLetterOfUnstored, type StoreDeadLetter } from "../delivery/dead-letter.js";
import { fingerprint } from "../kernel/ids.js";
import { sharedNow } from "../kernel/time.js";

export type DeadLetterEvent = (
  event: OutboxEvent,
  failure: { readonly reason: DlqReason; readonly error: unknown; readonly refusals: number },
) => Promise<void>;

function destinationOf(subject: string): { readonly event: DlqEvent; readonly stream: string | undefined } {
  const channel = channelOf(subject);
  if (channel !== undefined) return { event: channel, stream: streamOf(channel) };
  for (const stream of [STREAM.edges, STREAM.engagement])
    if (subject.startsWith(`${stream.toLowerCase()}.`)) return { event: WORK_EVENTS[stream], stream };
  return { event: "outbox_event", stream: undefined };
}

/** An event has one dead letter, however often it is stored. Resolves after the PubAck. */
export function createDeadLetterEvent(options: {
  readonly source: string;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly version: string;
}): DeadLetterEvent {
  const { source, storeDeadLetter, version } = options;
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
    await storeDeadLetter(deadLetterOfUnstored(unstored, { reason, error, event, version, now: sharedNow() }));
  };
}
