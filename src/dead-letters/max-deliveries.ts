import { z } from "zod";
import { parseJson } from "../contracts/events.js";
import { understood } from "../contracts/untrusted.js";
import { type DeadLetters, letterOf } from "../delivery/dead-letter.js";
import type { Delivery, Handler } from "../delivery/handler.js";
import { AppError } from "../kernel/errors.js";

/** What the server says of a message it gave up (nats-server, JSConsumerDeliveryExceededAdvisory). */
const advisory = z.object({
  stream: z.string(),
  consumer: z.string(),
  stream_seq: z.number().int().positive(),
  deliveries: z.number().int(),
});

interface BackstopDeps {
  /** The message as it is stored; undefined where it is gone. */
  readonly readMessage: (stream: string, seq: number) => Promise<Omit<Delivery, "consumer" | "deliveries"> | undefined>;
  /** Removes from a work queue what nobody will be handed again. */
  readonly removeMessage: (stream: string, seq: number) => Promise<void>;
  readonly deadLetters: DeadLetters;
  /** Names the event a message carries. */
  readonly eventOf: (message: Pick<Delivery, "stream" | "subject">) => string;
  readonly isWorkQueue: (stream: string) => boolean;
  readonly version: string;
}

/**
 * Handles the advisories of a consumer's max_deliver: the letter that the
 * worker never came to write is written here, under the same id, so that there
 * is at most one.
 */
export function createBackstop(deps: BackstopDeps): Handler {
  return async (delivery, { log }) => {
    const { stream, consumer, stream_seq: seq, deliveries } = understood(advisory, parseJson(delivery.body));
    const stored = await deps.readMessage(stream, seq);
    if (!stored) return;
    const error = new AppError("failed", `the server gave it up after handing it out ${deliveries} times`);
    const letter = letterOf({ ...stored, consumer, deliveries }, deliveries, {
      reason: "exhausted",
      error,
      event: deps.eventOf(stored),
      version: deps.version,
      now: Date.now(),
    });
    await deps.deadLetters(letter);
    if (deps.isWorkQueue(stream)) await deps.removeMessage(stream, seq);
    log.error({ stream, consumer, seq, deliveries }, "a message the server gave up was dead-lettered");
  };
}
