import { setMaxListeners } from "node:events";
import {
  type Consumer,
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
import { unlessAbsent } from "./ask.js";
import { Handling, type HandlingOptions, type PullContext } from "./handling.js";
import { Incarnation } from "./incarnation.js";
import { drainPull, restartMonitor, waitForServer } from "./wire.js";

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

/** `get` has asked already. */
const createdAtOf = async (consumer: Consumer): Promise<number> => Date.parse((await consumer.info(true)).created);

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
    // The server forgets requests whose inbox is gone when it is asked for the consumer. With one of these waiting,
    // servers 2.9 deliver the first message that is handed back only after ack_wait, and the last one twice.
    await this.#jetstream.consumers.get(stream, consumer).catch(() => undefined);
  }

  async #pull(): Promise<void> {
    const { stream, consumer } = this.options;
    const source = await unlessAbsent(this.#jetstream.consumers.get(stream, consumer), "stream", "consumer");
    if (source === undefined) {
      if (this.#source) this.#abandon(this.#source);
      throw new Error("the consumer does not exist");
    }
    const from = this.#sourceOf(await createdAtOf(source));
    const stopping = AbortSignal.any([this.#stop.signal, from.gone.signal]);
    setMaxListeners(0, stopping);
    this.#incarnation.settle(from.createdAt);
    this.pulling = true;
    this.#told = false;
    const pull = {
      context: { stopping, log: this.options.log },
      mayAck: () => this.#isFrom(from, stopping),
      latest: from.latest,
    };
    while (!from.gone.signal.aborted) {
      // What comes is in flight at once: nobody reports work on a message that waits in the client.
      const max_messages = await this.#room(from);
      if (max_messages === 0) return;
      const messages = await source.fetch({ max_messages, ...PULL });
      waitForServer(messages);
      if (this.#closing) return messages.stop();
      this.#messages = messages;
      const watched = this.#watch(messages, from);
      for await (const message of messages) if (!from.gone.signal.aborted) this.#take(message, pull);
      if ((await watched) || this.#incarnation.current === undefined) return;
    }
  }

  #take(message: JsMsg, pull: PullContext): void {
    if (this.#closing) this.#notBegun.push(message);
    else this.#handling.take(message, pull);
  }

  /** Resolves to the number of messages that may come. */
  async #room(from: Source): Promise<number> {
    while (!this.#closing && !from.gone.signal.aborted) {
      const { room } = this.#handling;
      if (room > 0) return room;
      const over = new AbortController();
      await Promise.race([this.#handling.freed(), pause(SECOND, over.signal)]);
      over.abort();
      if (this.#handling.room > 0) continue;
      // While nothing is pulled, nothing tells that the consumer is gone.
      if (!(await this.#isThere(from))) {
        this.#suspect();
        this.#abandon(from);
      }
      // Acks wait for an answer: the next pull gives it to them.
      if (this.#incarnation.current === undefined) return 0;
    }
    return 0;
  }

  /** Resolves to true if it has stopped the pull: the caller then asks for the state anew. */
  async #watch(messages: ConsumerMessages, from: Source): Promise<boolean> {
    let isStopped = false;
    const stop = (): void => {
      isStopped = true;
      messages.stop();
    };
    for await (const { type, data } of await messages.status()) {
      if (type === ConsumerEvents.HeartbeatsMissed) {
        if ((data as number) >= MISSED_HEARTBEATS) stop();
        // The client asks by itself as well, and would go on with another consumer of the same name.
        void this.#isSame(from).then((same) => same === false && this.#abandon(from));
      }
      // Nobody responds while a consumer has no leader, either.
      if (type !== ConsumerEvents.NoResponders && !GONE.has(type)) continue;
      this.#suspect();
      if (GONE.has(type)) this.#abandon(from);
      stop();
    }
    return isStopped;
  }

  async #followLink(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type !== Events.Reconnect || this.#closing) continue;
      this.#suspect();
      if (this.#source) void this.#goOn(this.#source);
    }
  }

  async #goOn(from: Source): Promise<void> {
    const messages = this.#messages;
    const same = await this.#isSame(from);
    if (from !== this.#source || this.#closing) return;
    if (same === false) return this.#abandon(from);
    if (same === undefined) {
      // The next pull begins once NATS answers. If another question was answered meanwhile, this pull goes on.
      if (this.#incarnation.current === undefined) messages?.stop();
      return;
    }
    this.#incarnation.settle(from.createdAt);
    restartMonitor(this.#messages);
    this.pulling = true;
  }

  #abandon(from: Source): void {
    from.gone.abort();
    if (from === this.#source) this.#messages?.stop();
  }

  /** Resolves to undefined if NATS does not answer: work in hand may go on. */
  async #isSame(from: Source): Promise<boolean | undefined> {
    // The client resets the pull after a reconnect; a pull stopped before that leaks its timer.
    await pause(SECOND, this.#stop.signal);
    return this.#isThere(from).catch(() => undefined);
  }

  /** Rejects while NATS does not answer. */
  async #isThere({ createdAt }: Source): Promise<boolean> {
    const { stream, consumer } = this.options;
    const current = await unlessAbsent(this.#jetstream.consumers.get(stream, consumer), "stream", "consumer");
    return current !== undefined && (await createdAtOf(current)) === createdAt;
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

  /** A sequence of a consumer that is gone may name another message by now: its ack would remove that one. */
  async #isFrom({ createdAt }: Source, stopping: AbortSignal): Promise<boolean> {
    return (this.#incarnation.current ?? (await this.#incarnation.known(stopping))) === createdAt;
  }
}
