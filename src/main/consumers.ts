import type { NatsConnection } from "nats";
import { eventOfSubject } from "../contracts/events.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import type { DeadLetters } from "../delivery/dead-letter.js";
import { Gate } from "../delivery/gate.js";
import type { Delivery, Handler } from "../delivery/handler.js";
import { countOutcome, measured } from "../delivery/measured.js";
import { createProcess } from "../delivery/process.js";
import { traced } from "../delivery/traced.js";
import { leftOut } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { createBackstop } from "../operator/backstop.js";
import { type Consuming, consume } from "../platform/nats/consume.js";
import type { Publish } from "../platform/nats/publish.js";
import { createStoredMessages } from "../platform/nats/stored.js";
import { createAttempts } from "../platform/redis/attempts.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Config } from "./config.js";
import { VERSION } from "./version.js";

interface ConsumerDeps {
  readonly config: Config;
  readonly nats: NatsConnection;
  readonly scripts: Scripts;
  readonly publish: Publish;
  readonly log: Logger;
}

/** Stores dead letters in the DLQ stream. */
export function deadLettersTo(publish: Publish): DeadLetters {
  return async (letter) => {
    const stored = publish(letter);
    if (leftOut("dlq-ack")) return void stored.catch(() => undefined);
    await stored;
  };
}

/** Starts the consumers of fan-out on their handlers, and the backstop behind them. */
export function startConsumers(
  deps: ConsumerDeps,
  handlers: { drops: Handler; graph: Handler; jobs: Handler },
): Consuming[] {
  const gate = new Gate();
  const logged = (delivery: Delivery): string => eventOfSubject(delivery.subject);
  return [
    start(deps, { gate, stream: STREAM.drops, consumer: CONSUMER.planner, handler: handlers.drops, eventOf: logged }),
    start(deps, { gate, stream: STREAM.drops, consumer: CONSUMER.graph, handler: handlers.graph, eventOf: logged }),
    start(deps, {
      gate,
      stream: STREAM.fanout,
      consumer: CONSUMER.worker,
      handler: handlers.jobs,
      eventOf: () => "fanout_job",
    }),
    start(deps, {
      gate,
      stream: STREAM.advisories,
      consumer: CONSUMER.backstop,
      handler: backstop(deps),
      eventOf: () => "advisory",
    }),
  ];
}

function backstop({ nats, publish }: ConsumerDeps): Handler {
  const messages = createStoredMessages(nats);
  return createBackstop({
    readMessage: messages.read,
    removeMessage: messages.remove,
    deadLetters: deadLettersTo(publish),
    eventOf: ({ stream, subject }) => (stream === STREAM.fanout ? "fanout_job" : eventOfSubject(subject)),
    isWorkQueue: (stream) => stream === STREAM.fanout,
    version: VERSION,
  });
}

function start(
  { config, nats, scripts, publish, log }: ConsumerDeps,
  of: { gate: Gate; stream: string; consumer: string; handler: Handler; eventOf: (delivery: Delivery) => string },
): Consuming {
  const process = createProcess({
    handler: traced(measured(of.handler)),
    attempts: createAttempts(scripts),
    deadLetters: deadLettersTo(publish),
    limits: { maxAttempts: config.TIMELINE_FANOUT_MAX_ATTEMPTS, retryBaseMs: config.TIMELINE_RETRY_BASE_MS },
    gate: of.gate,
    version: VERSION,
    eventOf: of.eventOf,
    observe: countOutcome,
  });
  return consume(nats, {
    ...of,
    concurrency: config.TIMELINE_FANOUT_CONCURRENCY,
    ackWaitMs: config.TIMELINE_ACK_WAIT_MS,
    process,
    log,
  });
}
