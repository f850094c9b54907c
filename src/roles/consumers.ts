import { channelOf } from "../contracts/channels.js";
import {
  CONSUMER,
  type DlqEvent,
  type ErasurePart,
  erasureConsumer,
  STREAM,
  TIMELINE_COMPLETED,
  workEventOf,
} from "../contracts/subjects.js";
import { cutWhereTooLarge, type StoreDeadLetter } from "../delivery/dead-letter.js";
import type { BatchHandler, Delivery, Handler, Handlers, Process } from "../delivery/handler.js";
import { countOutcome, expectOutcomes, observed, observedBatch } from "../delivery/observe.js";
import { createBatchProcess, createProcess } from "../delivery/process.js";
import { VERSION } from "../kernel/version.js";
import { createMaxDeliveriesHandler } from "../operators/dead-letters/index.js";
import { type Consuming, consume } from "../platform/nats/consume/consume.js";
import { createForgetHandler, type Forget } from "../state/index.js";
import type { Config } from "./config/config.js";
import type { Connections } from "./connections.js";
import type { RoleDeps } from "./role.js";

type ConsumerDeps = Pick<RoleDeps, "connections" | "suspectLock" | "wraps" | "log"> & {
  readonly config: Pick<Config, "delivery" | "nats">;
};

/** Messages that a consumer handles one by one at a time, unless it has a number of its own. */
const CONCURRENCY = 64;
/** Several batches are under way at once, as many messages as `concurrency` a batch. */
const BATCHES = 4;
/** Maximum number of edges in a batch, divided by `concurrency`. A larger batch reads fewer pages of drops. */
const EDGES_A_BATCH = 32;
/** Maximum number of drops in a batch, divided by `concurrency`. In a larger batch more drops share calls and homes. */
const DROPS_A_BATCH = 4;
/**
 * Maximum number of jobs in a batch, divided by `concurrency`. A job takes this process 1 ms at a stretch, for which
 * small drops and reads wait.
 */
const JOBS_A_BATCH = 1 / 32;

/** Starts the consumers of fan-out on their handlers, and the max-deliveries handler behind all consumers. */
export function startFanoutConsumers(
  deps: ConsumerDeps,
  handlers: Readonly<Record<"drops" | "graph" | "hotGraph" | "jobs" | "rest", Handlers>>,
): Consuming[] {
  const concurrency = concurrencyOf(deps);
  const batched = (stream: string, consumer: string, { single, batch }: Handlers, messages: number): Consuming =>
    startConsumer(deps, { stream, consumer, handler: single, batchHandler: batch, concurrency: messages });
  return [
    batched(STREAM.drops, CONSUMER.planner, handlers.drops, DROPS_A_BATCH * concurrency),
    batched(STREAM.drops, CONSUMER.graph, handlers.graph, EDGES_A_BATCH * concurrency),
    batched(STREAM.fanout, CONSUMER.worker, handlers.jobs, Math.ceil(JOBS_A_BATCH * concurrency)),
    batched(STREAM.fanout, CONSUMER.hotGraph, handlers.hotGraph, Math.ceil(JOBS_A_BATCH * concurrency)),
    batched(STREAM.fanout, CONSUMER.rest, handlers.rest, 1),
    startConsumer(deps, {
      stream: STREAM.advisories,
      consumer: CONSUMER.backstop,
      handler: maxDeliveriesHandler(deps.connections),
    }),
  ];
}

const concurrencyOf = ({ wraps }: ConsumerDeps): number => wraps?.limits?.concurrency ?? CONCURRENCY;

/** Dead-letters messages of any of our streams that exceeded max_deliver. */
export const maxDeliveriesHandler = ({
  nats,
  storeDeadLetter,
}: Pick<Connections, "nats" | "storeDeadLetter">): Handler =>
  createMaxDeliveriesHandler({ nats, storeDeadLetter: cutWhereTooLarge(storeDeadLetter), eventOf, version: VERSION });

/** Returns the event name in the subject of a dead letter. */
function eventOf({ stream, subject }: Pick<Delivery, "stream" | "subject">): DlqEvent {
  if (stream === STREAM.advisories) return "advisory";
  if (stream === STREAM.checks) return "fanout_completed";
  if (stream === STREAM.timelineEvents) return TIMELINE_COMPLETED;
  return workEventOf(stream) ?? channelOf(subject) ?? "unknown";
}

const ERASURES_AT_ONCE = 4;
/** Users whom the timelines forget at once share one walk over Redis. */
const FORGOTTEN_TOGETHER = 64;
/** More are known than are forgotten, so that people can come before remote actors. */
const ERASURES_KNOWN = 256;

/** Starts the consumer by which a role forgets erased users. */
export async function startForgetting(deps: ConsumerDeps, part: ErasurePart, forget: Forget): Promise<Consuming> {
  const { erased } = deps.connections.state;
  await erased.announce(part);
  const atOnce = part === "timelines" ? FORGOTTEN_TOGETHER : ERASURES_AT_ONCE;
  return startConsumer(deps, {
    stream: STREAM.drops,
    consumer: erasureConsumer(part),
    handler: createForgetHandler(erased, part, forget, atOnce),
    concurrency: ERASURES_KNOWN,
  });
}

interface ConsumerOptions {
  readonly stream: string;
  readonly consumer: string;
  readonly handler: Handler;
  /** Handles first deliveries in batches. */
  readonly batchHandler?: BatchHandler;
  /** Maximum number of messages that are handled at a time, or are in a batch. Default: that of fan-out. */
  readonly concurrency?: number;
  /** The default is that of fan-out. */
  readonly maxAttempts?: number;
  /** Wraps the processing of a message that is handled singly. */
  readonly around?: (process: Process) => Process;
  /** The default is the DLQ. */
  readonly storeDeadLetter?: StoreDeadLetter;
}

/** Starts a consumer under the failure policy: attempts, retries, dead letters. */
export function startConsumer(deps: ConsumerDeps, options: ConsumerOptions): Consuming {
  const { config, connections, suspectLock, wraps = {}, log } = deps;
  const { stream, consumer, handler, batchHandler, concurrency = concurrencyOf(deps) } = options;
  const { nats, state, topology } = connections;
  expectOutcomes(consumer);
  const toOutcome = createProcess({
    handler: observed(wraps.handler?.(handler) ?? handler),
    attempts: state.attempts,
    storeDeadLetter: cutWhereTooLarge(options.storeDeadLetter ?? connections.storeDeadLetter),
    limits: {
      maxAttempts: options.maxAttempts ?? config.delivery.maxAttempts,
      retryBaseMs: config.delivery.retryBaseMs,
    },
    waiting: stream === STREAM.drops ? state.waiting : undefined,
    suspectLock,
    version: VERSION,
    eventOf,
    observe: countOutcome,
    batched: batchHandler !== undefined,
  });
  const process = options.around?.(toOutcome) ?? toOutcome;
  const processBatch =
    batchHandler && createBatchProcess({ handler: observedBatch(consumer, batchHandler), observe: countOutcome });
  const batch = processBatch && { process: wraps.batch?.(processBatch) ?? processBatch, messages: concurrency };
  return consume(nats, {
    stream,
    consumer,
    concurrency: batch ? BATCHES * concurrency : concurrency,
    ...(batch ? { batch, alone: concurrencyOf(deps) } : {}),
    ackWaitMs: config.nats.ackWaitMs,
    process: wraps.process?.(process) ?? process,
    stopped: () => topology.check(),
    log,
  });
}
