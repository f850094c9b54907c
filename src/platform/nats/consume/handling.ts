import { setImmediate as tickEnded } from "node:timers/promises";
import type { JsMsg } from "nats";
import pLimit from "p-limit";
import type { Context, Delivery, DeliveryOutcome, Process, ProcessBatch } from "../../../delivery/handler.js";
import { assertNever, oneLine } from "../../../kernel/errors.js";
import { failpoint } from "../../../kernel/failpoints.js";
import { pause, SECOND } from "../../../kernel/time.js";
import { deliveryOf } from "../message.js";
import type { ConsumeState, Source } from "./state.js";

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

interface MessageInFlight {
  readonly message: JsMsg;
  readonly delivery: Delivery;
  readonly source: Source;
}

/** The messages of a consumer are in flight here. This is the only place where work is acked. */
export class Handling {
  readonly #inFlight = new Map<readonly MessageInFlight[], Promise<void>>();
  #size = 0;
  #arrived: MessageInFlight[] = [];
  #batches = 0;
  #freed: (() => void) | undefined;
  #tick: Promise<void> | undefined;
  readonly #alone: ReturnType<typeof pLimit>;

  constructor(
    private readonly options: HandlingOptions,
    private readonly state: ConsumeState,
  ) {
    this.#alone = pLimit(options.alone ?? options.concurrency);
  }

  get size(): number {
    return this.#size;
  }

  take(message: JsMsg, source: Source): void {
    const { batch } = this.options;
    const delivery = deliveryOf(message, this.options);
    const isInFlight = source.latest.has(delivery.seq);
    source.latest.set(delivery.seq, message);
    if (isInFlight) return;
    const taken = { message, delivery, source };
    if (this.state.isClosing) return void this.#arrived.push(taken);
    if (!batch || delivery.deliveries > 1) return void this.#begin(taken);
    if (this.#arrived[0]?.source !== source) this.#beginBatch();
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

  close(): void {
    this.#freed?.();
  }

  /** Gives back what has not begun. */
  handBack(): void {
    for (const taken of this.#arrived.splice(0)) latestOf(taken).nak();
  }

  async ended(): Promise<void> {
    await Promise.all(this.#inFlight.values());
  }

  working(): void {
    for (const together of this.#inFlight.keys()) for (const { message } of together) message.working();
    for (const { message } of this.#arrived) message.working();
  }

  #begin(taken: MessageInFlight): Promise<void> {
    const messages = [taken];
    const handling = this.#alone(() => this.#handle(taken)).finally(() => this.#ended(messages));
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
    if (this.#batches < BATCHES_AT_ONCE && !this.state.isClosing) this.#beginBatch();
  }

  #beginBatch(): void {
    const taken = this.#arrived;
    const source = taken[0]?.source;
    if (source === undefined) return;
    this.#arrived = [];
    this.#batches++;
    this.#started(taken, this.#handleBatch(taken, source));
  }

  async #handleBatch(taken: readonly MessageInFlight[], source: Source): Promise<void> {
    const deliveries = taken.map(({ delivery }) => delivery);
    let isCounted = true;
    const beginNext = (): void => {
      if (isCounted) this.#batches--;
      isCounted = false;
      this.#beginIfFew();
    };
    const unhandled = new Set(await this.options.batch?.process(deliveries, { ...source.context, beginNext }));
    const mayAck = await this.state.mayAck(source);
    const alone = unhandled.size === 0 ? [] : taken.filter(({ delivery }) => unhandled.has(delivery));
    const done = unhandled.size === 0 ? taken : taken.filter(({ delivery }) => !unhandled.has(delivery));
    const acked = done.map(latestOf);
    if (mayAck) for (const message of acked) message.ack();
    const handlings = alone.map((delivery) => this.#begin(delivery));
    this.#ended(taken);
    beginNext();
    await failpoint("acked", ...deliveries.map(({ body }) => body));
    await Promise.all(handlings);
  }

  async #handle(taken: MessageInFlight): Promise<void> {
    const { message, delivery, source } = taken;
    const { context } = source;
    try {
      const outcome = this.state.isClosing ? await released(context) : await this.options.process(delivery, context);
      await this.#endOfTick();
      const mayAck = await this.state.mayAck(source);
      const latest = latestOf(taken);
      if (mayAck) ackOrNak(latest, outcome);
      await failpoint("acked", message.data);
    } catch (error) {
      // Our own state is broken; the message comes again.
      const { stack } = error as Error;
      context.log.error({ seq: delivery.seq, error: oneLine(error), stack }, "handling failed outside of a handler");
      latestOf(taken).nak(SECOND);
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
function latestOf({ message, delivery: { seq }, source: { latest } }: MessageInFlight): JsMsg {
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
