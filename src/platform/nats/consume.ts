import { setMaxListeners } from "node:events";
import {
  ConsumerEvents,
  type ConsumerMessages,
  type JetStreamClient,
  type JsMsg,
  type MsgHdrs,
  millis,
  type NatsConnection,
  type Subscription,
} from "nats";
import type { Context, Delivery, Headers, Outcome } from "../../delivery/handler.js";
import { assertNever } from "../../kernel/assert-never.js";
import { oneLine } from "../../kernel/errors.js";
import { failpoint, leftOut } from "../../kernel/failpoints.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";

/** Which consumer to pull from, and how much at a time. */
export interface ConsumeOptions {
  readonly stream: string;
  readonly consumer: string;
  /** Messages handled at once; as many again wait in the process. */
  readonly concurrency: number;
  /** The consumer's ack_wait, in ms. */
  readonly ackWaitMs: number;
  readonly process: (delivery: Delivery, context: Context) => Promise<Outcome>;
  readonly log: Logger;
}

/** A running consumer. */
export interface Consuming {
  /** True while messages are being pulled. */
  healthy(): boolean;
  /** Stops pulling, hands back what was not begun, and resolves when what was begun is done or `graceMs` is over. */
  close(graceMs: number): Promise<void>;
}

// A leader change stalls a pull for two heartbeats: short ones keep that short (heartbeat * 2 <= expires).
const PULL = { expires: 8_000, idle_heartbeat: 2_000 };
const MISSED_HEARTBEATS = 3;

/** Pulls from a durable consumer and obeys the outcomes; the only place where work is acked. */
export function consume(connection: NatsConnection, options: ConsumeOptions): Consuming {
  const loop = new ConsumeLoop(connection.jetstream(), options);
  const running = loop.run();
  return {
    healthy: () => loop.pulling,
    close: async (graceMs) => {
      await loop.close(graceMs);
      // While NATS is away the pull never ends by itself.
      await Promise.race([running, pause(SECOND)]);
      if (!connection.isClosed()) await connection.flush().catch(() => undefined);
    },
  };
}

class ConsumeLoop {
  pulling = false;
  readonly #inFlight = new Map<JsMsg, Promise<void>>();
  readonly #stop = new AbortController();
  readonly #notBegun: JsMsg[] = [];
  #closing = false;
  #messages: ConsumerMessages | undefined;
  #freed: (() => void) | undefined;

  constructor(
    private readonly jetstream: JetStreamClient,
    private readonly options: ConsumeOptions,
  ) {}

  async run(): Promise<void> {
    const { stream, consumer, log } = this.options;
    // Every message in hand may wait for it.
    setMaxListeners(0, this.#stop.signal);
    // Three times in ack_wait: what is in hand is never handed out a second time.
    const working = setInterval(() => this.#working(), this.options.ackWaitMs / 3);
    while (!this.#closing) {
      try {
        await this.#pull();
      } catch (error) {
        log.warn({ stream, consumer, error: oneLine(error) }, "pulling stopped; it starts again");
      }
      this.pulling = false;
      await pause(SECOND, this.#stop.signal);
    }
    clearInterval(working);
  }

  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    this.#freed?.();
    // Nothing is handed back before the pull has ended: the server would send it here once more.
    if (this.#messages) await Promise.race([drained(this.#messages), pause(SECOND)]);
    this.#stop.abort();
    for (const message of this.#notBegun) message.nak();
    // What is not done by then is left unacked: the server hands it out again.
    await Promise.race([Promise.all(this.#inFlight.values()), pause(graceMs)]);
    const { stream, consumer, log } = this.options;
    if (this.#inFlight.size > 0)
      log.warn({ stream, consumer, messages: this.#inFlight.size }, "not finished in time; delivered again elsewhere");
  }

  async #pull(): Promise<void> {
    const { stream, consumer, concurrency } = this.options;
    const source = await this.jetstream.consumers.get(stream, consumer);
    const messages = await source.consume({ max_messages: concurrency, ...PULL });
    this.#messages = messages;
    // Closed while the pull was being opened.
    if (this.#closing) return void (await messages.close());
    this.pulling = true;
    void this.#watch(messages);
    for await (const message of messages) {
      if (this.#closing) this.#notBegun.push(message);
      else await this.#take(message);
    }
  }

  /** Ends an iterator that no longer hears from the server, so that the loop opens a new one. */
  async #watch(messages: ConsumerMessages): Promise<void> {
    for await (const status of await messages.status()) {
      if (status.type === ConsumerEvents.HeartbeatsMissed && (status.data as number) >= MISSED_HEARTBEATS)
        messages.stop();
      if (status.type === ConsumerEvents.ConsumerDeleted || status.type === ConsumerEvents.ConsumerNotFound)
        messages.stop();
    }
  }

  async #take(message: JsMsg): Promise<void> {
    const handling = this.#handle(message).finally(() => {
      this.#inFlight.delete(message);
      this.#freed?.();
    });
    this.#inFlight.set(message, handling);
    while (this.#inFlight.size >= this.options.concurrency && !this.#closing) {
      await new Promise<void>((resolve) => {
        this.#freed = resolve;
      });
    }
  }

  async #handle(message: JsMsg): Promise<void> {
    const { process, log } = this.options;
    try {
      if (leftOut("ack-last")) message.ack();
      const outcome = await process(deliveryOf(message), { stopping: this.#stop.signal, log });
      this.#obey(message, outcome);
      await failpoint("acked", message.data);
    } catch (error) {
      // Nothing below throws on purpose: this is our own broken state, and the message comes again.
      log.error({ seq: message.seq, error: oneLine(error), stack: (error as Error).stack }, "handling broke");
      message.nak(SECOND);
    }
  }

  #obey(message: JsMsg, outcome: Outcome): void {
    switch (outcome.kind) {
      case "ack":
        message.ack();
        break;
      case "retry":
        message.nak(outcome.delayMs);
        break;
      case "release":
        message.nak();
        break;
      default:
        assertNever(outcome);
    }
  }

  #working(): void {
    for (const message of this.#inFlight.keys()) message.working();
  }
}

/**
 * Ends a pull without losing what is on its way. The client's own close drops
 * what arrives after it, and the server hands that out again only after
 * ack_wait; draining the subscription beneath, which it keeps to itself but
 * follows, takes in everything the server has sent.
 */
async function drained(messages: ConsumerMessages): Promise<void> {
  const { sub } = messages as unknown as { readonly sub: Subscription };
  await sub.drain().catch(() => undefined);
  await messages.closed();
}

/** A message as handlers see it. */
export function deliveryOf(message: JsMsg): Delivery {
  const { info } = message;
  return {
    stream: info.stream,
    consumer: info.consumer,
    seq: info.streamSequence,
    time: millis(info.timestampNanos),
    subject: message.subject,
    headers: headersOf(message.headers),
    body: message.data,
    deliveries: info.redeliveryCount,
  };
}

const NO_HEADERS: Headers = { get: () => undefined, entries: () => [] };

/** Wraps a message's headers; the client answers "" for a missing one. */
export function headersOf(held: MsgHdrs | undefined): Headers {
  if (!held) return NO_HEADERS;
  return {
    get: (name) => (held.has(name) ? held.get(name) : undefined),
    entries: () => held.keys().map((name) => [name, held.get(name)] as const),
  };
}
