import type { Publish } from "../platform/nats/publish.js";
import type { PublishEvent } from "./ports.js";

/** Publishes events of an outbox straight to JetStream. */
export function createPublishEvent(publish: Publish): PublishEvent {
  return async ({ subject, messageId, body, traceparent }) => {
    await publish({
      subject,
      id: messageId,
      body: Buffer.from(body),
      ...(traceparent == null ? {} : { headers: { traceparent } }),
    });
  };
}
