import { setImmediate as tickEnded } from "node:timers/promises";
import type { JsMsg } from "nats";
import pLimit from "p-limit";
import type { Context, Delivery, Outcome, Process, ProcessBatch } from "../../delivery/handler.js";
import { assertNever, oneLine } from "../../kernel/errors.js";
import { failpoint } from "../../kernel/failpoints.js";
import { pause, SECOND } from "../../kernel/time.js";
import { ackAll, deliveryOf } from "./message.js";

export interface HandlingOptions {
  readonly concurrency: number;
  readonly process: Process;
  /** Takes first deliveries together, at most so many; unset: each is processed by itself. */
  readonly batch?: { readonly process: ProcessBatch; readonly messages: number } | undefined;
  /** Of the messages in hand, those that are processed by themselves at once; unset: all. */
  readonly alone?: number | undefined;
}

/**
 * While so many batches are under way, messages gather until one has ended or lets the next begin, or they are as many
 * as a batch may be.
 */
const BATCHES_AT_ONCE = 2;

/** The context of a message's handling; `mayAck` is false where its ack would name another message. */
export interface Hand {
  readonly context: Context;
  readonly mayAck: () => Promise<boolean>;
  /**
   * The latest delivery of each message in hand, by its sequence. A message that comes again meanwhile is not handled
   * twice at once: its first handling would count as lost.
   */
  readonly latest: Map<number, JsMsg>;
}

/** The messages a consumer has in hand. The only place where work is acked. */
export class Handling {
  readonly #inFlight = new Map<JsMsg, Promise<void>>();
  #arrived: JsMsg[] = [];
  #hand: Hand | undefined;
  #batches = 0;
  #closing = false;
  #freed: (() => void) | undefined;
  #tick: Promise<void> | undefined;
  readonly #alone: ReturnType<typeof pLimit>;

  constructor(private readonly options: HandlingOptions) {
    this.#alone = pLimit(options.alone ?? options.concurrency);
  }

  get size(): number {
    return this.#inFlight.size;
  }

  take(message: JsMsg, hand: Hand): void {
    const { batch } = this.options;
    const isInHand = hand.latest.has(message.seq);
    hand.latest.set(message.seq, message);
    if (isInHand) return;
    if (!batch || message.redelivered) return void this.#begin(message, hand);
    if (this.#hand !== hand) this.#beginBatch();
    this.#hand = hand;
    this.#arrived.push(message);
    if (this.#arrived.length === batch.messages) this.#beginBatch();
    else if (this.#arrived.length === 1) setImmediate(() => this.#beginIfFew());
  }

  /** Resolves once another message may be taken, or none will be; undefined where one may be taken at once. */
  room(): Promise<void> | undefined {
    if (this.#inFlight.size + this.#arrived.length < this.options.concurrency || this.#closing) return undefined;
    return new Promise<void>((resolve) => {
      this.#freed = resolve;
    }).then(() => this.room());
  }

  /** Returns the messages that are not begun. */
  close(): JsMsg[] {
    this.#closing = true;
    this.#freed?.();
    const hand = this.#hand;
    return hand ? this.#arrived.splice(0).map((message) => latestOf(message, hand)) : [];
  }

  async ended(): Promise<void> {
    await Promise.all(this.#inFlight.values());
  }

  working(): void {
    for (const message of this.#inFlight.keys()) message.working();
    for (const message of this.#arrived) message.working();
  }

  #begin(message: JsMsg, hand: Hand): Promise<void> {
    const handling = this.#alone(() => this.#handle(message, hand));
    this.#inFlight.set(message, handling);
    return handling;
  }

  #beginIfFew(): void {
    if (this.#batches < BATCHES_AT_ONCE) this.#beginBatch();
  }

  #beginBatch(): void {
    const [messages, hand] = [this.#arrived, this.#hand];
    if (messages.length === 0 || !hand) return;
    this.#arrived = [];
    this.#batches++;
    const handling = this.#handleBatch(messages, hand);
    for (const message of messages) this.#inFlight.set(message, handling);
  }

  async #handleBatch(messages: readonly JsMsg[], hand: Hand): Promise<void> {
    const deliveries = messages.map(deliveryOf);
    let isCounted = true;
    const beginNext = (): void => {
      if (isCounted) this.#batches--;
      isCounted = false;
      this.#beginIfFew();
    };
    const left = new Set(await this.options.batch?.process(deliveries, { ...hand.context, beginNext }));
    const mayAck = await hand.mayAck();
    const alone: JsMsg[] = [];
    const done: JsMsg[] = [];
    for (const [at, message] of messages.entries()) {
      if (left.has(deliveries[at] as Delivery)) alone.push(message);
      else {
        done.push(latestOf(message, hand));
        this.#inFlight.delete(message);
      }
    }
    if (mayAck) ackAll(done);
    const handlings = alone.map((message) => this.#begin(message, hand));
    beginNext();
    this.#freed?.();
    await failpoint("acked", ...deliveries.map(({ body }) => body));
    await Promise.all(handlings);
  }

  async #handle(message: JsMsg, hand: Hand): Promise<void> {
    const { context, mayAck } = hand;
    try {
      const outcome = this.#closing
        ? await released(context)
        : await this.options.process(deliveryOf(message), context);
      await this.#endOfTick();
      const may = await mayAck();
      const latest = latestOf(message, hand);
      if (may) obey(latest, outcome);
      await failpoint("acked", message.data);
    } catch (error) {
      // Our own state is broken; the message comes again.
      const { stack } = error as Error;
      context.log.error({ seq: message.seq, error: oneLine(error), stack }, "handling broke");
      latestOf(message, hand).nak(SECOND);
    } finally {
      this.#inFlight.delete(message);
      this.#freed?.();
    }
  }

  /** Acks of messages that end together go out in one write. */
  #endOfTick(): Promise<void> {
    this.#tick ??= tickEnded().finally(() => {
      this.#tick = undefined;
    });
    return this.#tick;
  }
}

/** From now on the message is not in hand. */
function latestOf(message: JsMsg, { latest }: Hand): JsMsg {
  const found = latest.get(message.seq) ?? message;
  latest.delete(message.seq);
  return found;
}

/** Not before the pull has ended. */
async function released({ stopping }: Context): Promise<Outcome> {
  await pause(SECOND, stopping);
  return { kind: "release" };
}

function obey(message: JsMsg, outcome: Outcome): void {
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
