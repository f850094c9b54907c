import type { Redis } from "ioredis";
import { eventOfSubject } from "../contracts/events.js";
import { AppError, oneLine } from "../kernel/errors.js";
import type { OutboxEvent, PublishEvent } from "./ports.js";

/**
 * Announces an event on its Redis channel, too, for consumers that listen there. A bridge that hears it admits it under
 * the same message id, and so not again.
 */
export function createAnnounce(redis: Pick<Redis, "publish">): (event: OutboxEvent) => Promise<void> {
  return async ({ subject, body, traceparent }) => {
    const payload = traceparent === undefined ? body : JSON.stringify({ ...JSON.parse(body), traceparent });
    try {
      await redis.publish(eventOfSubject(subject), payload);
    } catch (error) {
      throw new AppError("unavailable", `Redis did not take an event: ${oneLine(error)}`, { cause: error });
    }
  };
}

/** Publishes, and announces then; what is about nothing anybody listens for is only published. */
export function announcing(publish: PublishEvent, announce: (event: OutboxEvent) => Promise<void>): PublishEvent {
  return async (event) => {
    await publish(event);
    if (/^(drops|graph)\./.test(event.subject)) await announce(event);
  };
}
