import type { ConsumerInfo, NatsConnection, StreamInfo } from "nats";
import { sharedNow } from "../../kernel/time.js";
import { askNats, managerOf, unlessAbsent } from "../../platform/nats/ask.js";
import { readTopology } from "../../platform/nats/declared.js";
import { unfinishedSeconds } from "../../platform/nats/depths.js";
import { createStoredMessages } from "../../platform/nats/message.js";

/**
 * Returns a function that reads the streams and consumers as they are now; those that do not exist yet are left out.
 * Rates are the differences of two answers: `last_seq` counts what was stored, `handled` what was acknowledged.
 *
 * @param notifyParts number of streams that share the notifications
 */
export function createReadQueues(nats: NatsConnection, notifyParts: number) {
  const stored = createStoredMessages(nats);
  const topology = readTopology(notifyParts);
  return () =>
    askNats("the streams", async () => {
      const [{ streams, consumers }, manager] = await Promise.all([topology, managerOf(nats)]);
      const [existing, consuming] = await Promise.all([
        Promise.all(streams.map(({ name }) => unlessAbsent(manager.streams.info(name), "stream"))),
        Promise.all(
          consumers.map(async ({ stream, config }) => {
            const asked = manager.consumers.info(stream, config.durable_name as string);
            const info = await unlessAbsent(asked, "stream", "consumer");
            return info && { ...consumerAsJson(info), oldest_seconds: await unfinishedSeconds(stored, info) };
          }),
        ),
      ]);
      return {
        /** The time is in ms since the epoch. */
        at: sharedNow(),
        streams: existing.filter((info) => info !== undefined).map(streamAsJson),
        consumers: consuming.filter((consumer) => consumer !== undefined),
      };
    });
}

const streamAsJson = ({ config, state }: StreamInfo) => ({
  name: config.name,
  about: config.description ?? "",
  messages: state.messages,
  bytes: state.bytes,
  max_bytes: config.max_bytes > 0 ? config.max_bytes : null,
  last_seq: state.last_seq,
});

const consumerAsJson = (info: ConsumerInfo) => ({
  stream: info.stream_name,
  name: info.name,
  about: info.config.description ?? "",
  pending: info.num_pending,
  ack_pending: info.num_ack_pending,
  redelivered: info.num_redelivered,
  handled: Math.max(0, info.delivered.consumer_seq - info.num_ack_pending),
});
