import type { Redis } from "ioredis";
import { channelOf } from "../contracts/channels.js";
import { AppError, oneLine } from "../kernel/errors.js";
import type { Publish } from "../platform/nats/publish.js";
import { publishRefusal } from "../platform/nats/publish-errors.js";
import { EventRefused, type PublishEvent } from "./relay.js";

export function createPublishEvent(publish: Publish): PublishEvent {
  return async ({ subject, messageId, body, traceparent }) => {
    try {
      await publish({
        subject,
        id: messageId,
        body: Buffer.from(body),
        ...(traceparent == null ? {} : { headers: { traceparent } }),
      });
    } catch (error) {
      throw refused(error) ?? error;
    }
  };
}

/** A stream that is full or missing takes the event later. */
function refused(cause: unknown): EventRefused | undefined {
  switch (publishRefusal(cause)) {
    case "toolarge":
      return new EventRefused("toolarge", true, { cause });
    case "malformed":
      return new EventRefused("poison", true, { cause });
    case "refused":
      return new EventRefused("poison", false, { cause });
    default:
      return undefined;
  }
}

/** A bridge does not admit the same message id again. */
export function alsoOnChannels(publish: PublishEvent, redis: Pick<Redis, "publish">, prefix: string): PublishEvent {
  return async (event) => {
    await publish(event);
    const { subject, body, traceparent } = event;
    const channel = channelOf(subject);
    if (channel === undefined) return;
    const payload = traceparent == null ? body : JSON.stringify({ ...JSON.parse(body), traceparent });
    try {
      await redis.publish(prefix + channel, payload);
    } catch (error) {
      throw new AppError("unavailable", `Redis did not take an event: ${oneLine(error)}`, { cause: error });
    }
  };
}
