import type { NatsConnection } from "nats";
import { z } from "zod";
import { parseJson } from "../../contracts/events.js";
import { type DlqEvent, workEventOf } from "../../contracts/subjects.js";
import { understood } from "../../contracts/untrusted.js";
import { deadLetterOf, type StoreDeadLetter } from "../../delivery/dead-letter.js";
import type { Delivery, Handler } from "../../delivery/handler.js";
import { AppError } from "../../kernel/errors.js";
import { sharedNow } from "../../kernel/time.js";
import { createStoredMessages } from "../../platform/nats/message.js";

/** nats-server calls this message JSConsumerDeliveryExceededAdvisory. */
const advisory = z.object({
  stream: z.string(),
  consumer: z.string(),
  stream_seq: z.number().int().positive(),
  deliveries: z.number().int(),
});

interface MaxDeliveriesDeps {
  readonly nats: NatsConnection;
  readonly storeDeadLetter: StoreDeadLetter;
  readonly eventOf: (message: Pick<Delivery, "stream" | "subject">) => DlqEvent;
  readonly version: string;
}

/**
 * Handles the advisory that a message of any of our streams exceeded the max_deliver of its consumer: dead-letters the
 * message under the id that the consumer would have used, so that there is at most one dead letter, and takes it off a
 * work queue.
 */
export function createMaxDeliveriesHandler({ nats, storeDeadLetter, eventOf, version }: MaxDeliveriesDeps): Handler {
  const messages = createStoredMessages(nats);
  return async (delivery, { log }) => {
    const { stream, consumer, stream_seq: seq, deliveries } = understood(advisory, parseJson(delivery.body));
    const stored = await messages.read(stream, seq);
    // A younger message is another one, of a stream that was made anew: the advisory outlives the stream.
    if (!stored || stored.time > delivery.time) return;
    const error = new AppError("failed", `NATS gave up after ${deliveries} deliveries`);
    const about = { reason: "exhausted", error, event: eventOf(stored), version, now: sharedNow() } as const;
    await storeDeadLetter(deadLetterOf({ ...stored, consumer, deliveries }, deliveries, about));
    if (workEventOf(stream) !== undefined) await messages.remove(stream, seq);
    log.error({ stream, consumer, seq, deliveries }, "a message that exceeded max_deliver was dead-lettered");
  };
}
