import { setMaxListeners } from "node:events";
import {
  ConsumerEvents,
  type ConsumerMessages,
  Events,
  type JetStreamClient,
  type JsMsg,
  type NatsConnection,
} from "nats";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import { Handling, type HandlingOptions, type PullContext } from "./handling.js";
import { Incarnation } from "./incarnation.js";
import { drainPull, restartMonitor } from "./wire.js";

export interface ConsumeOptions extends HandlingOptions {
  readonly ackWaitMs: number;
  readonly stopped?: (() => void) | undefined;
  readonly log: Logger;
}

export type Consuming = ReturnType<typeof consume>;

// A leader change stalls a pull for two heartbeats (heartbeat * 2 <= expires).
const PULL = { expires: 8_000, idle_heartbeat: 2_000 };
const MISSED_HEARTBEATS = 3;
const GONE = new Set<string>([
  ConsumerEvents.ConsumerDeleted,
  ConsumerEvents.ConsumerNotFound,
  ConsumerEvents.StreamNotFound,
  ConsumerEvents.NoResponders,
]);

export function consume(connection: NatsConnection, options: ConsumeOptions) {
  const loop = new ConsumeLoop(connection, options);
  const running = loop.run();
  return {
    healthy: (): boolean => loop.pulling,
    /** Hands back messages not begun, and waits at most `graceMs` for the others. */
    close: async (graceMs: number): Promise<void> => {
      await loop.close(graceMs);
      // While NATS is unavailable the pull never ends by itself.
      await Promise.race([running, pause(SECOND)]);
      if (!connection.isClosed()) await connection.flush().catch(() => undefined);
    },
  };
}

interface Source {
  readonly createdAt: number;
  /** Aborts once the consumer is gone: its messages cannot be acked any more, and must not keep the slots. */
  readonly gone: AbortController;
  readonly latest: PullContext["latest"];
}

class ConsumeLoop {
  pulling = false;
  readonly #incarnation = new Incarnation();
  #source: Source | undefined;
  readonly #jetstream: JetStreamClient;
  readonly #handling: Handling;
  readonly #stop = new AbortController();
  readonly #notBegun: JsMsg[] = [];
  #closing = false;
  /** The log says once that pulling stopped, until it goes on. */
  #told = false;
  #messages: ConsumerMessages | undefined;

  constructor(
    private readonly connection: NatsConnection,
    private readonly options: ConsumeOptions,
  ) {
    this.#jetstream = connection.jetstream();
    this.#handling = new Handling(options);
  }

  async run(): Promise<void> {
    void this.#followLink();
    const { stream, consumer, log } = this.options;
    // Work is reported three times in ack_wait, so that no message in flight is delivered a second time.
    const working = setInterval(() => this.#handling.working(), this.options.ackWaitMs / 3);
    // A pull that never ends, for lack of NATS, must not keep the process.
    working.unref();
    while (!this.#closing) {
      try {
        await this.#pull();
      } catch (error) {
        if (!this.#told) log.warn({ stream, consumer, error: oneLine(error) }, "pulling stopped; it starts again");
        this.#told = true;
      }
      this.pulling = false;
      if (!this.#closing) this.#suspect();
      await pause(SECOND, this.#stop.signal);
    }
    clearInterval(working);
  }

  async close(graceMs: number): Promise<void> {
    this.#closing = true;
    this.#notBegun.push(...this.#handling.close());
    // The server would deliver it here once more until the pull has ended.
    if (this.#messages) await Promise.race([this.#pullEnded(this.#messages), pause(SECOND)]);
    this.#stop.abort();
    for (const message of this.#notBegun) message.nak();
    await Promise.race([this.#handling.ended(), pause(graceMs)]);
    const { stream, consumer, log } = this.options;
    if (this.#handling.size > 0)
      log.warn(
        { stream, consumer, messages: this.#handling.size },
        "messages were not finished within the grace period; NATS delivers them again",
      );
  }

  async #pullEnded(messages: ConsumerMessages): Promise<void> {
    await drainPull(messages);
    const { stream, consumer } = this.options;
    // The server forgets requests whose inbox is gone when it is asked for the consumer. With such a request waiting,
    // servers 2.9 deliver the first message that is handed back only after ack_wait, and the last one twice.
    await this.#jetstream.consumers.get(stream, consumer).catch(() => undefined);
  }

  async #pull(): Promise<void> {
    const { stream, consumer, concurrency } = this.options;
    const source = await this.#jetstream.consumers.get(stream, consumer);
    const createdAt = Date.parse((await source.info(true)).created);
    const messages = await source.consume({ max_messages: concurrency, ...PULL });
    this.#messages = messages;
    if (this.#closing) return void (await messages.close());
    const from = this.#sourceOf(createdAt);
    const stopping = AbortSignal.any([this.#stop.signal, from.gone.signal]);
    setMaxListeners(0, stopping);
    this.#incarnation.settle(createdAt);
    this.pulling = true;
    this.#told = false;
    void this.#watch(messages);
    const pull = {
      context: { stopping, log: this.options.log },
      mayAck: () => this.#isFrom(from, stopping),
      latest: from.latest,
    };
    for await (const message of messages) {
      if (this.#closing) this.#notBegun.push(message);
      else if (!from.gone.signal.aborted) {
        const room = this.#take(message, pull);
        if (room) await room;
      }
    }
  }

  async #watch(messages: ConsumerMessages): Promise<void> {
    for await (const { type, data } of await messages.status()) {
      if (type === ConsumerEvents.HeartbeatsMissed) {
        if ((data as number) >= MISSED_HEARTBEATS) messages.stop();
        // The client asks by itself as well, and would go on with another consumer of the same name.
        void this.#isSame().then((same) => same || this.#settle(messages, same));
      }
      if (!GONE.has(type)) continue;
      this.#suspect();
      this.#source?.gone.abort();
      messages.stop();
    }
  }

  async #followLink(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type !== Events.Reconnect || this.#closing) continue;
      this.#suspect();
      const messages = this.#messages;
      void this.#isSame().then((same) => this.#settle(messages, same));
    }
  }

  async #isSame(): Promise<boolean> {
    // The client resets the pull after a reconnect; a pull stopped before that leaks its timer.
    await pause(SECOND, this.#stop.signal);
    const { stream, consumer } = this.options;
    const found = await this.#jetstream.consumers.get(stream, consumer).catch(() => undefined);
    return found !== undefined && Date.parse((await found.info(true)).created) === this.#source?.createdAt;
  }

  #settle(messages: ConsumerMessages | undefined, same: boolean): void {
    if (messages !== this.#messages || this.#closing) return;
    if (same) {
      this.#incarnation.settle(this.#source?.createdAt as number);
      restartMonitor(messages);
      this.pulling = true;
    } else {
      this.#source?.gone.abort();
      messages?.stop();
    }
  }

  #sourceOf(createdAt: number): Source {
    const before = this.#source;
    if (before?.createdAt === createdAt && !before.gone.signal.aborted) return before;
    before?.gone.abort();
    this.#source = { createdAt, gone: new AbortController(), latest: new Map() };
    return this.#source;
  }

  #suspect(): void {
    this.pulling = false;
    this.#incarnation.suspect();
    this.options.stopped?.();
  }

  #take(message: JsMsg, pull: PullContext): Promise<void> | undefined {
    this.#handling.take(message, pull);
    return this.#handling.room();
  }

  /** A sequence of a consumer that is gone may name another message by now: its ack would remove that one. */
  async #isFrom({ createdAt }: Source, stopping: AbortSignal): Promise<boolean> {
    return (this.#incarnation.current ?? (await this.#incarnation.known(stopping))) === createdAt;
  }
}
