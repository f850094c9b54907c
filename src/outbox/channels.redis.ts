import type { Redis } from "ioredis";
import { eventOfSubject } from "../contracts/events.js";
import { AppError, oneLine } from "../kernel/errors.js";
import type { PublishEvent } from "./relay.js";

/** A bridge does not admit the same message id again. */
export function alsoOnChannels(publish: PublishEvent, redis: Pick<Redis, "publish">): PublishEvent {
  return async (event) => {
    await publish(event);
    const { subject, body, traceparent } = event;
    if (!/^(drops|graph)\./.test(subject)) return;
    const payload = traceparent === undefined ? body : JSON.stringify({ ...JSON.parse(body), traceparent });
    try {
      await redis.publish(eventOfSubject(subject), payload);
    } catch (error) {
      throw new AppError("unavailable", `Redis did not take an event: ${oneLine(error)}`, { cause: error });
    }
  };
}
