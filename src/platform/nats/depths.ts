import type { ConsumerInfo, JetStreamManager, NatsConnection } from "nats";
import { STREAM } from "../../contracts/subjects.js";
import type { Logger } from "../../kernel/logger.js";
import { SECOND, sharedNow } from "../../kernel/time.js";
import { gauge } from "../../telemetry/meters.js";
import { type Measurement, type Sample, startSampling } from "../../telemetry/samples.js";
import { readTopology } from "./declared.js";
import { createStoredMessages, type StoredMessages } from "./message.js";

const SAMPLE_MS = 5 * SECOND;
/** The timeout is below the interval, so that a server that does not answer shows within two samples. */
const TIMEOUT_MS = 3 * SECOND;

const GAUGES = {
  pending: gauge("timeline_queue_depth", "Messages not yet delivered to a consumer"),
  unacked: gauge("timeline_queue_unacked", "Messages delivered and not acknowledged"),
  oldest: gauge(
    "timeline_queue_oldest_seconds",
    "Age of the oldest message a consumer has not acknowledged; 0 where there is none",
  ),
  messages: gauge("timeline_stream_messages", "Messages in a stream"),
  bytes: gauge("timeline_stream_bytes", "Size of a stream"),
  maxBytes: gauge("timeline_stream_max_bytes", "Limit of a stream; absent where it has none"),
  lastSequence: gauge("timeline_stream_last_sequence", "Sequence of the last message of a stream; it never falls"),
  deadLetters: gauge("timeline_dlq_messages", "Dead letters in the DLQ"),
  advisories: gauge("timeline_advisories", "Messages the server gave up delivering"),
} as const;

interface DepthsOptions {
  /** Needs the right to read all streams, which only the role fanout has. */
  readonly ages: boolean;
  /** Number of streams that share the notifications. Default: 1. */
  readonly notifyParts?: number | undefined;
  readonly log: Logger;
  readonly everyMs?: number;
}

export async function startDepths(
  nats: NatsConnection,
  { ages, notifyParts, log, everyMs = SAMPLE_MS }: DepthsOptions,
): Promise<{ close(): Promise<void> }> {
  const { streams, consumers } = await readTopology(notifyParts);
  const manager = await nats.jetstreamManager({ checkAPI: false, timeout: TIMEOUT_MS });
  const stored = ages ? createStoredMessages(nats) : undefined;
  const samples: Sample[] = [
    ...streams.map(({ name }) => ({ name: `stream ${name}`, take: () => streamMeasurements(manager, name) })),
    ...consumers.map(({ stream, config }) => {
      const consumer = config.durable_name as string;
      const take = async () => consumerMeasurements(await manager.consumers.info(stream, consumer), stored);
      return { name: `consumer ${consumer}`, take };
    }),
  ];
  return startSampling(samples, { everyMs, log });
}

async function streamMeasurements(manager: JetStreamManager, stream: string): Promise<Measurement[]> {
  const { state, config } = await manager.streams.info(stream);
  const labels = { stream };
  return [
    { gauge: GAUGES.messages, labels, value: state.messages },
    { gauge: GAUGES.bytes, labels, value: state.bytes },
    { gauge: GAUGES.lastSequence, labels, value: state.last_seq },
    ...(config.max_bytes > 0 ? [{ gauge: GAUGES.maxBytes, labels, value: config.max_bytes }] : []),
    ...(stream === STREAM.dlq ? [{ gauge: GAUGES.deadLetters, labels: {}, value: state.messages }] : []),
    ...(stream === STREAM.advisories ? [{ gauge: GAUGES.advisories, labels: {}, value: state.messages }] : []),
  ];
}

async function consumerMeasurements(info: ConsumerInfo, stored: StoredMessages | undefined): Promise<Measurement[]> {
  const labels = { consumer: info.name };
  return [
    { gauge: GAUGES.pending, labels, value: info.num_pending },
    { gauge: GAUGES.unacked, labels, value: info.num_ack_pending },
    ...(stored ? [{ gauge: GAUGES.oldest, labels, value: await unfinishedSeconds(stored, info) }] : []),
  ];
}

/** Returns the age of the oldest message that is not acknowledged, in s; 0 if there is none. */
export async function unfinishedSeconds(stored: StoredMessages, info: ConsumerInfo): Promise<number> {
  const { stream_name: stream, config, num_pending, num_ack_pending, ack_floor, delivered } = info;
  if (num_pending + num_ack_pending === 0) return 0;
  const done = num_ack_pending > 0 ? ack_floor.stream_seq : delivered.stream_seq;
  const oldest = await stored.next(stream, config.filter_subject ?? ">", done + 1);
  return oldest ? Math.max(0, sharedNow() - oldest.time) / SECOND : 0;
}
