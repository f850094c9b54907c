import { setImmediate as tickEnded } from "node:timers/promises";
import type { JsMsg } from "nats";
import pLimit from "p-limit";
import type { Context, Delivery, DeliveryOutcome, Process, ProcessBatch } from "../../delivery/handler.js";
import { assertNever, oneLine } from "../../kernel/errors.js";
import { failpoint } from "../../kernel/failpoints.js";
import { pause, SECOND } from "../../kernel/time.js";
import { deliveryOf } from "./message.js";

export interface HandlingOptions {
  readonly stream: string;
  readonly consumer: string;
  readonly concurrency: number;
  readonly process: Process;
  /** Processes first deliveries in batches of at most `messages`; unset: each alone. */
  readonly batch?: { readonly process: ProcessBatch; readonly messages: number } | undefined;
  /** Maximum number of messages processed singly at a time. Default: `concurrency`. */
  readonly alone?: number | undefined;
}

/** While this many batches run, the next one begins when one of them ends or lets it begin, or when it is full. */
const BATCHES_AT_ONCE = 2;

/** The context is that of a message's handling; `mayAck` is false if its ack would name another message. */
export interface PullContext {
  readonly context: Context;
  readonly mayAck: () => Promise<boolean>;
  /** A message that comes again meanwhile is not handled twice at once: its first handling would count as lost. */
  readonly latest: Map<number, JsMsg>;
}

interface MessageInFlight {
  readonly message: JsMsg;
  readonly delivery: Delivery;
}

/** The messages of a consumer are in flight here. This is the only place where work is acked. */
export class Handling {
  readonly #inFlight = new Map<readonly MessageInFlight[], Promise<void>>();
  #size = 0;
  #arrived: MessageInFlight[] = [];
  #pull: PullContext | undefined;
  #batches = 0;
  #closing = false;
  #freed: (() => void) | undefined;
  #tick: Promise<void> | undefined;
  readonly #alone: ReturnType<typeof pLimit>;

  constructor(private readonly options: HandlingOptions) {
    this.#alone = pLimit(options.alone ?? options.concurrency);
  }

  get size(): number {
    return this.#size;
  }

  take(message: JsMsg, pull: PullContext): void {
    const { batch } = this.options;
    const delivery = deliveryOf(message, this.options);
    const isInFlight = pull.latest.has(delivery.seq);
    pull.latest.set(delivery.seq, message);
    if (isInFlight) return;
    const taken = { message, delivery };
    if (!batch || delivery.deliveries > 1) return void this.#begin(taken, pull);
    if (this.#pull !== pull) this.#beginBatch();
    this.#pull = pull;
    this.#arrived.push(taken);
    if (this.#arrived.length === batch.messages) this.#beginBatch();
    else if (this.#arrived.length === 1) setImmediate(() => this.#beginIfFew());
  }

  /** Number of messages that may still be taken. */
  get room(): number {
    return this.options.concurrency - this.#size - this.#arrived.length;
  }

  /** Resolves once handlings have ended, or none begin any more. */
  freed(): Promise<void> {
    return new Promise((resolve) => {
      this.#freed = resolve;
    });
  }

  close(): JsMsg[] {
    this.#closing = true;
    this.#freed?.();
    const pull = this.#pull;
    return pull ? this.#arrived.splice(0).map((taken) => latestOf(taken, pull)) : [];
  }

  async ended(): Promise<void> {
    await Promise.all(this.#inFlight.values());
  }

  working(): void {
    for (const together of this.#inFlight.keys()) for (const { message } of together) message.working();
    for (const { message } of this.#arrived) message.working();
  }

  #begin(taken: MessageInFlight, pull: PullContext): Promise<void> {
    const messages = [taken];
    const handling = this.#alone(() => this.#handle(taken, pull)).finally(() => this.#ended(messages));
    this.#started(messages, handling);
    return handling;
  }

  #started(together: readonly MessageInFlight[], handling: Promise<void>): void {
    this.#inFlight.set(together, handling);
    this.#size += together.length;
  }

  #ended(together: readonly MessageInFlight[]): void {
    this.#inFlight.delete(together);
    this.#size -= together.length;
    this.#freed?.();
  }

  #beginIfFew(): void {
    if (this.#batches < BATCHES_AT_ONCE) this.#beginBatch();
  }

  #beginBatch(): void {
    const [taken, pull] = [this.#arrived, this.#pull];
    if (taken.length === 0 || !pull) return;
    this.#arrived = [];
    this.#batches++;
    this.#started(taken, this.#handleBatch(taken, pull));
  }

  async #handleBatch(taken: readonly MessageInFlight[], pull: PullContext): Promise<void> {
    const deliveries = taken.map(({ delivery }) => delivery);
    let isCounted = true;
    const beginNext = (): void => {
      if (isCounted) this.#batches--;
      isCounted = false;
      this.#beginIfFew();
    };
    const unhandled = new Set(await this.options.batch?.process(deliveries, { ...pull.context, beginNext }));
    const mayAck = await pull.mayAck();
    const alone = unhandled.size === 0 ? [] : taken.filter(({ delivery }) => unhandled.has(delivery));
    const done = unhandled.size === 0 ? taken : taken.filter(({ delivery }) => !unhandled.has(delivery));
    const acked = done.map((delivery) => latestOf(delivery, pull));
    if (mayAck) for (const message of acked) message.ack();
    const handlings = alone.map((delivery) => this.#begin(delivery, pull));
    this.#ended(taken);
    beginNext();
    await failpoint("acked", ...deliveries.map(({ body }) => body));
    await Promise.all(handlings);
  }

  async #handle(taken: MessageInFlight, pull: PullContext): Promise<void> {
    const { context, mayAck } = pull;
    const { message, delivery } = taken;
    try {
      const outcome = this.#closing ? await released(context) : await this.options.process(delivery, context);
      await this.#endOfTick();
      const may = await mayAck();
      const latest = latestOf(taken, pull);
      if (may) ackOrNak(latest, outcome);
      await failpoint("acked", message.data);
    } catch (error) {
      // Our own state is broken; the message comes again.
      const { stack } = error as Error;
      context.log.error({ seq: delivery.seq, error: oneLine(error), stack }, "handling failed outside of a handler");
      latestOf(taken, pull).nak(SECOND);
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

/** The message is not in flight any more. */
function latestOf({ message, delivery: { seq } }: MessageInFlight, { latest }: PullContext): JsMsg {
  const newest = latest.get(seq) ?? message;
  latest.delete(seq);
  return newest;
}

/** The message is not given back before the pull has ended. */
async function released({ stopping }: Context): Promise<DeliveryOutcome> {
  await pause(SECOND, stopping);
  return { kind: "release" };
}

function ackOrNak(message: JsMsg, outcome: DeliveryOutcome): void {
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
