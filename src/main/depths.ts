import { metrics } from "@opentelemetry/api";
import type { NatsConnection } from "nats";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { SECOND } from "../kernel/time.js";

const SAMPLE_MS = 5 * SECOND;
const CONSUMERS = [
  { stream: STREAM.drops, consumer: CONSUMER.planner },
  { stream: STREAM.drops, consumer: CONSUMER.graph },
  { stream: STREAM.fanout, consumer: CONSUMER.worker },
  { stream: STREAM.edges, consumer: CONSUMER.edges },
  { stream: STREAM.edges, consumer: CONSUMER.hotEdges },
  { stream: STREAM.engagement, consumer: CONSUMER.counter },
  { stream: STREAM.advisories, consumer: CONSUMER.backstop },
] as const;

/** Samples how much work waits, and how many letters lie in the DLQ, for `/metrics`. */
export function startDepths(nats: NatsConnection): { close(): void } {
  const meter = metrics.getMeter("avion-timeline");
  const pending = meter.createGauge("timeline_queue_depth", {
    description: "Messages a consumer has not been handed yet",
  });
  const inHand = meter.createGauge("timeline_queue_unacked", {
    description: "Messages handed out and not acknowledged",
  });
  const letters = meter.createGauge("timeline_dlq_messages", { description: "Dead letters in the DLQ" });
  const advisories = meter.createGauge("timeline_advisories", {
    description: "Messages the server gave up delivering",
  });
  const sample = async (): Promise<void> => {
    const manager = await nats.jetstreamManager({ checkAPI: false });
    for (const { stream, consumer } of CONSUMERS) {
      const info = await manager.consumers.info(stream, consumer);
      pending.record(info.num_pending, { consumer });
      inHand.record(info.num_ack_pending, { consumer });
    }
    letters.record((await manager.streams.info(STREAM.dlq)).state.messages);
    advisories.record((await manager.streams.info(STREAM.advisories)).state.messages);
  };
  // While NATS is away the last sample stands; readiness says that it is away.
  const run = (): void => void sample().catch(() => undefined);
  run();
  const timer = setInterval(run, SAMPLE_MS);
  timer.unref();
  return { close: () => clearInterval(timer) };
}
