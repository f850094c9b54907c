import { setMaxListeners } from "node:events";
import { ConsumerEvents, type ConsumerMessages, Events, type JsMsg, type NatsConnection } from "nats";
import { oneLine } from "../../../kernel/errors.js";
import type { Logger } from "../../../kernel/logger.js";
import { pause, SECOND } from "../../../kernel/time.js";
import { unlessAbsent } from "../ask.js";
import { drainPull, restartMonitor, waitForServer } from "../wire.js";
import { Handling, type HandlingOptions } from "./handling.js";
import { ConsumeState, type Source } from "./state.js";

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
    /** True while a pull is open, which an interruption of the link does not end. */
    healthy: (): boolean => loop.state.isPulling,
    /** Hands back messages not begun, and waits at most `graceMs` for the others. */
    close: async (graceMs: number): Promise<void> => {
      await loop.close(graceMs);
      // While NATS is unavailable the pull never ends by itself.
      await Promise.race([running, pause(SECOND)]);
      if (!connection.isClosed()) await connection.flush().catch(() => undefined);
    },
  };
}

/** Pulls while the state says so, and tells the state what happens; state.ts describes it. */
class ConsumeLoop {
  readonly state = new ConsumeState();
  readonly #handling: Handling;
  readonly #stop = new AbortController();
  /** The log says once that pulling stopped, until it goes on. */
  #told = false;
  #messages: ConsumerMessages | undefined;

  constructor(
    private readonly connection: NatsConnection,
    private readonly options: ConsumeOptions,
  ) {
    this.#handling = new Handling(options, this.state);
  }

  async run(): Promise<void> {
    void this.#followLink();
    const deletions = this.#followDeletions();
    const { stream, consumer, log } = this.options;
    // Work is reported three times in ack_wait, so that no message in flight is delivered a second time.
    const working = setInterval(() => this.#handling.working(), this.options.ackWaitMs / 3);
    // A pull that never ends, for lack of NATS, must not keep the process.
    working.unref();
    while (!this.state.isClosing) {
      try {
        await this.#pull();
      } catch (error) {
        if (!this.#told) log.warn({ stream, consumer, error: oneLine(error) }, "pulling stopped; it starts again");
        this.#told = true;
      }
      this.#on("stop");
      await pause(SECOND, this.#stop.signal);
    }
    clearInterval(working);
    if (!this.connection.isClosed()) for (const subscription of deletions) subscription.unsubscribe();
  }

  async close(graceMs: number): Promise<void> {
    this.#on("close");
    this.#handling.close();
    // The server would deliver it here once more until the pull has ended.
    if (this.#messages) await Promise.race([this.#pullEnded(this.#messages), pause(SECOND)]);
    this.#stop.abort();
    this.#handling.handBack();
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
    // The server forgets requests whose inbox is gone when it is asked for the consumer. With one of these waiting,
    // servers 2.9 deliver the first message that is handed back only after ack_wait, and the last one twice.
    await this.#ask().catch(() => undefined);
  }

  async #pull(): Promise<void> {
    const { steps } = this.state;
    const answer = await this.#ask();
    if (answer === undefined) {
      if (this.state.source) this.#abandon(this.state.source);
      throw new Error("the consumer does not exist");
    }
    if (steps !== this.state.steps) return;
    const source = this.#sourceOf(answer.createdAt);
    this.state.confirm(source);
    this.#told = false;
    while (source === this.state.source) {
      // What comes is in flight at once: nobody reports work on a message that waits in the client.
      const max_messages = await this.#room(source);
      if (max_messages === 0) return;
      const messages = await answer.consumer.fetch({ max_messages, ...PULL });
      waitForServer(messages);
      if (this.state.isClosing) return messages.stop();
      this.#messages = messages;
      const watched = this.#watch(messages, source);
      for await (const message of messages) this.#take(message, source);
      if ((await watched) || this.state.current !== "pulling") return;
    }
  }

  #take(message: JsMsg, source: Source): void {
    if (source !== this.state.source) return;
    const { deliverySequence } = message.info;
    // Another consumer counts its deliveries from 1.
    if (deliverySequence <= source.delivered) this.#doubt();
    source.delivered = deliverySequence;
    this.#handling.take(message, source);
  }

  /** Resolves to the number of messages that may come. */
  async #room(source: Source): Promise<number> {
    while (source === this.state.source && !this.state.isClosing) {
      const { room } = this.#handling;
      if (room > 0) return room;
      const over = new AbortController();
      await Promise.race([this.#handling.freed(), pause(SECOND, over.signal)]);
      over.abort();
      if (this.#handling.room > 0) continue;
      // While nothing is pulled, only an announcement tells that the consumer is gone, which may be lost.
      if ((await this.#ask())?.createdAt !== source.createdAt) this.#abandon(source);
      // Acks wait for an answer: the next pull gives it to them.
      if (this.state.current !== "pulling") return 0;
    }
    return 0;
  }

  /** Resolves to true if it has stopped the pull: the caller then asks for the state anew. */
  async #watch(messages: ConsumerMessages, source: Source): Promise<boolean> {
    let isStopped = false;
    const stop = (): void => {
      isStopped = true;
      messages.stop();
    };
    for await (const { type, data } of await messages.status()) {
      if (type === ConsumerEvents.HeartbeatsMissed) {
        if ((data as number) >= MISSED_HEARTBEATS) stop();
        // The client asks by itself as well, and would go on with another consumer of the same name.
        void this.#compare(source);
      }
      // Nobody responds while a consumer has no leader, either.
      if (type !== ConsumerEvents.NoResponders && !GONE.has(type)) continue;
      if (GONE.has(type)) this.#abandon(source);
      else this.#on("doubt");
      stop();
    }
    return isStopped;
  }

  /** Acks wait while the link is down: the client would send some of them to whatever server it reaches next. */
  async #followLink(): Promise<void> {
    for await (const { type } of this.connection.status()) {
      if (type === Events.Disconnect) this.#on("doubt");
      if (type === Events.Reconnect) this.#doubt();
    }
  }

  /** Nothing else tells of a deletion while no pull is open. */
  #followDeletions() {
    const { stream, consumer } = this.options;
    // Without the permission to hear announcements, answers and deliveries tell the same later.
    const callback = (error: Error | null): void => void (error || this.#doubt());
    return [`STREAM.DELETED.${stream}`, `CONSUMER.DELETED.${stream}.${consumer}`].map((event) =>
      this.connection.subscribe(`$JS.EVENT.ADVISORY.${event}`, { callback }),
    );
  }

  #on(happening: "doubt" | "stop" | "close"): void {
    this.state.on(happening);
    if (!this.state.isClosing) this.options.stopped?.();
  }

  #doubt(): void {
    this.#on("doubt");
    if (this.state.source) void this.#compare(this.state.source);
  }

  #abandon(source: Source): void {
    if (source !== this.state.source) return;
    this.state.abandon();
    this.#messages?.stop();
    this.options.stopped?.();
  }

  /** Asks whether the consumer is still the same. Work in hand goes on if NATS does not answer. */
  async #compare(source: Source): Promise<void> {
    // The client resets the pull after a reconnect; a pull stopped before that leaks its timer.
    await pause(SECOND, this.#stop.signal);
    const { steps } = this.state;
    const createdAt = await this.#ask().then(
      (answer) => answer?.createdAt,
      () => "unanswered",
    );
    if (steps !== this.state.steps || source !== this.state.source || this.state.isClosing) return;
    if (createdAt !== "unanswered" && createdAt !== source.createdAt) return this.#abandon(source);
    if (this.state.current !== "doubting") return;
    // The next pull begins once NATS answers.
    if (createdAt === "unanswered") return this.#messages?.stop();
    this.state.confirm(source);
    restartMonitor(this.#messages);
  }

  /** Resolves to undefined if the consumer does not exist, and rejects while NATS does not answer. */
  async #ask() {
    const { stream, consumer: name } = this.options;
    const consumer = await unlessAbsent(this.connection.jetstream().consumers.get(stream, name), "stream", "consumer");
    // `get` has asked already.
    return consumer && { consumer, createdAt: Date.parse((await consumer.info(true)).created) };
  }

  #sourceOf(createdAt: number): Source {
    const { source } = this.state;
    if (source?.createdAt === createdAt) return source;
    const gone = new AbortController();
    const stopping = AbortSignal.any([this.#stop.signal, gone.signal]);
    setMaxListeners(0, stopping);
    return { createdAt, gone, context: { stopping, log: this.options.log }, latest: new Map(), delivered: 0 };
  }
}
