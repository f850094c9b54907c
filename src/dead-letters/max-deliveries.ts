import { z } from "zod";
import { parseJson } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import { deadLetterOf, type StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Delivery, Handler } from "../delivery/handler.js";
import { AppError } from "../kernel/errors.js";

/** nats-server, JSConsumerDeliveryExceededAdvisory. */
const advisory = z.object({
  stream: z.string(),
  consumer: z.string(),
  stream_seq: z.number().int().positive(),
  deliveries: z.number().int(),
});

export interface MaxDeliveriesDeps {
  readonly readMessage: (stream: string, seq: number) => Promise<Omit<Delivery, "consumer" | "deliveries"> | undefined>;
  readonly removeMessage: (stream: string, seq: number) => Promise<void>;
  readonly deadLetters: StoreDeadLetter;
  readonly eventOf: (message: Pick<Delivery, "stream" | "subject">) => string;
  readonly isWorkQueue: (stream: string) => boolean;
  readonly version: string;
}

/**
 * Handles the advisory that a message exceeded the max_deliver of its consumer: dead-letters the message under the
 * id that the consumer would have used, so that there is at most one dead letter, and takes it off a work queue.
 */
export function createMaxDeliveriesHandler(deps: MaxDeliveriesDeps): Handler {
  return async (delivery, { log }) => {
    const { stream, consumer, stream_seq: seq, deliveries } = understood(advisory, parseJson(delivery.body));
    const stored = await deps.readMessage(stream, seq);
    if (!stored) return;
    const error = new AppError("failed", `NATS gave up after ${deliveries} deliveries`);
    const deadLetter = deadLetterOf({ ...stored, consumer, deliveries }, deliveries, {
      reason: "exhausted",
      error,
      event: deps.eventOf(stored),
      version: deps.version,
      now: Date.now(),
    });
    await deps.deadLetters(deadLetter);
    if (deps.isWorkQueue(stream)) await deps.removeMessage(stream, seq);
    log.error({ stream, consumer, seq, deliveries }, "a message that exceeded max_deliver was dead-lettered");
  };
}
