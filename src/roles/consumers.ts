import { eventOfSubject } from "../contracts/events.js";
import { CONSUMER, STREAM, TIMELINE_COMPLETED, workEventOf } from "../contracts/subjects.js";
import { createMaxDeliveriesHandler } from "../dead-letters/index.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Delivery, Handler } from "../delivery/handler.js";
import { createProcess } from "../delivery/process.js";
import { countOutcome, expectOutcomes, observed } from "../delivery/telemetry.js";
import { type Consuming, consume } from "../platform/nats/consume.js";
import { createAttempts } from "../platform/redis/attempts.js";
import type { Connections } from "./connections.js";
import type { RoleDeps } from "./role.js";
import { VERSION } from "./version.js";

/** Slices of the configuration that every consumer reads. */
export type ConsumerSlices = "delivery" | "nats";

type ConsumerDeps = Pick<RoleDeps<ConsumerSlices>, "config" | "connections" | "gate" | "wraps" | "log">;

/** Edges wait for their batch, and the larger it is the fewer calls they make. */
const EDGES_AT_ONCE = 4;

/** Starts the consumers of fan-out on their handlers, and the max-deliveries handler behind all consumers. */
export function startFanoutConsumers(
  deps: ConsumerDeps,
  handlers: { drops: Handler; graph: Handler; jobs: Handler },
): Consuming[] {
  return [
    startConsumer(deps, { stream: STREAM.drops, consumer: CONSUMER.planner, handler: handlers.drops }),
    startConsumer(deps, {
      stream: STREAM.drops,
      consumer: CONSUMER.graph,
      handler: handlers.graph,
      concurrency: EDGES_AT_ONCE * deps.config.delivery.concurrency,
    }),
    startConsumer(deps, { stream: STREAM.fanout, consumer: CONSUMER.worker, handler: handlers.jobs }),
    startConsumer(deps, {
      stream: STREAM.advisories,
      consumer: CONSUMER.backstop,
      handler: maxDeliveriesHandler(deps.connections),
    }),
  ];
}

/** Dead-letters messages that exceeded max_deliver, of any of our streams. */
export const maxDeliveriesHandler = ({ nats, publish }: Pick<Connections, "nats" | "publish">): Handler =>
  createMaxDeliveriesHandler({ nats, deadLetters: publish, eventOf, version: VERSION });

/** The event name in the subject of a dead letter. */
function eventOf({ stream, subject }: Pick<Delivery, "stream" | "subject">): string {
  if (stream === STREAM.advisories) return "advisory";
  if (stream === STREAM.completions) return "fanout_completed";
  if (stream === STREAM.timelineEvents) return TIMELINE_COMPLETED;
  return workEventOf(stream) ?? eventOfSubject(subject);
}

interface ConsumerOptions {
  readonly stream: string;
  readonly consumer: string;
  readonly handler: Handler;
  /** Messages in flight; unset: as configured for fan-out. */
  readonly concurrency?: number;
  /** Unset: as configured for fan-out. */
  readonly maxAttempts?: number;
  /** Unset: the DLQ. */
  readonly storeDeadLetter?: StoreDeadLetter;
}

/** Starts a consumer under the failure policy: attempts, retries, dead letters. */
export function startConsumer(deps: ConsumerDeps, options: ConsumerOptions): Consuming {
  const { config, connections, gate, wraps = {}, log } = deps;
  const { nats, scripts, publish, topology } = connections;
  expectOutcomes(options.consumer);
  const toOutcome = createProcess({
    handler: observed(wraps.handler?.(options.handler) ?? options.handler),
    attempts: createAttempts(scripts),
    storeDeadLetter: options.storeDeadLetter ?? publish,
    limits: {
      maxAttempts: options.maxAttempts ?? config.delivery.maxAttempts,
      retryBaseMs: config.delivery.retryBaseMs,
    },
    gate,
    version: VERSION,
    eventOf,
    observe: countOutcome,
  });
  return consume(nats, {
    stream: options.stream,
    consumer: options.consumer,
    concurrency: options.concurrency ?? config.delivery.concurrency,
    ackWaitMs: config.nats.ackWaitMs,
    process: wraps.process?.(toOutcome) ?? toOutcome,
    stopped: () => topology.check(),
    log,
  });
}
