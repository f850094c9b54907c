import {
  AckPolicy,
  type Consumer,
  type ConsumerInfo,
  DeliverPolicy,
  type JetStreamManager,
  type JsMsg,
  type NatsConnection,
  nanos,
} from "nats";
import { STREAM } from "../../contracts/subjects.js";
import { AppError } from "../../kernel/errors.js";
import { DAY, pause, SECOND } from "../../kernel/time.js";
import { askNats, managerOf, natsError, unlessAbsent } from "../../platform/nats/ask.js";
import { deliveryOf } from "../../platform/nats/message.js";
import type { TimeRange } from "../reconcile/reconcile.js";
import type { Logged } from "./replay.js";

/** A range of the log whose progress NATS keeps, so that a replay that was stopped or killed goes on. */
export interface ResumableRange {
  read(stopping: AbortSignal): AsyncIterable<Logged>;
  readonly resumed: boolean;
  readonly left: number;
  forget(): Promise<void>;
}

/** Events that a killed process had in flight are delivered again after this. */
const ACK_WAIT_MS = 10 * SECOND;
const KEPT_MS = DAY;
const A_BATCH = 200;
const FETCH_MS = SECOND;
/** After so many empty fetches in a row, although events are left, the server has stopped answering. */
const MAX_EMPTY = 15;
const READING = `reading ${STREAM.drops}`;

/** A range of this name (`[A-Za-z0-9_-]`) that was left at most a day ago continues, up to the end given now. */
export function openResumableRange(nats: NatsConnection, name: string, range: TimeRange): Promise<ResumableRange> {
  return askNats(READING, async () => {
    const manager = await managerOf(nats);
    const known = await infoOf(manager, name);
    const opened =
      known ??
      (await manager.consumers.add(STREAM.drops, {
        durable_name: name,
        description: "A replay by hand; removed a day after it was left",
        deliver_policy: DeliverPolicy.StartTime,
        opt_start_time: new Date(range.since).toISOString(),
        ack_policy: AckPolicy.Explicit,
        ack_wait: nanos(ACK_WAIT_MS),
        inactive_threshold: nanos(KEPT_MS),
        max_ack_pending: 2 * A_BATCH,
      }));
    const end = await lastBefore(manager, range.until);
    const source = await nats.jetstream().consumers.get(STREAM.drops, name);
    return {
      read: (stopping) => new Reading(source, end, stopping).run(),
      resumed: known !== undefined,
      left: freshIn(opened, end) + opened.num_ack_pending,
      forget: () => forgetResumableRange(nats, name),
    };
  });
}

export function forgetResumableRange(nats: NatsConnection, name: string): Promise<void> {
  return askNats("removing a replay", async () => {
    const manager = await managerOf(nats);
    if (await infoOf(manager, name)) await manager.consumers.delete(STREAM.drops, name);
  });
}

const infoOf = (manager: JetStreamManager, name: string): Promise<ConsumerInfo | undefined> =>
  unlessAbsent(manager.consumers.info(STREAM.drops, name), "consumer");

async function lastBefore(manager: JetStreamManager, until: number): Promise<number> {
  if (!Number.isFinite(until)) return (await manager.streams.info(STREAM.drops)).state.last_seq;
  // For a consumer that is to begin at a time, the server looks up the sequence before it.
  const probe = await manager.consumers.add(STREAM.drops, {
    deliver_policy: DeliverPolicy.StartTime,
    opt_start_time: new Date(until).toISOString(),
    ack_policy: AckPolicy.None,
    inactive_threshold: nanos(10 * SECOND),
  });
  await manager.consumers.delete(STREAM.drops, probe.name).catch(() => undefined);
  return probe.delivered.stream_seq;
}

const freshIn = ({ num_pending, delivered }: ConsumerInfo, end: number): number =>
  Math.max(0, Math.min(num_pending, end - delivered.stream_seq));

class Reading {
  readonly #held = new Set<JsMsg>();
  readonly #beyond = new Set<number>();
  #ended = false;
  #working: NodeJS.Timeout | undefined;

  constructor(
    private readonly source: Consumer,
    private readonly end: number,
    private readonly stopping: AbortSignal,
  ) {}

  async *run(): AsyncGenerator<Logged> {
    this.#working = setInterval(() => {
      for (const message of this.#held) message.working();
    }, ACK_WAIT_MS / 3);
    this.#working.unref();
    try {
      for (let empty = 0; !this.stopping.aborted; ) {
        const { fresh, elsewhere } = await this.#left();
        if (fresh <= 0 && elsewhere <= 0) return;
        const messages = await this.#fetch(Math.min(A_BATCH, Math.max(fresh, elsewhere)));
        empty = messages.length === 0 && fresh > 0 ? empty + 1 : 0;
        if (empty >= MAX_EMPTY) throw new AppError("unavailable", "the log stopped answering");
        if (messages.length === 0) await pause(SECOND / 4, this.stopping);
        yield* this.#hand(messages);
      }
    } catch (error) {
      throw natsError(READING, error);
    } finally {
      this.#ended = true;
      this.#settle();
    }
  }

  /** `elsewhere`: a run that was killed had these in flight, or another has them now. */
  async #left(): Promise<{ fresh: number; elsewhere: number }> {
    const info = await this.source.info();
    return {
      fresh: freshIn(info, this.end),
      elsewhere: info.num_ack_pending - this.#held.size - this.#beyond.size,
    };
  }

  async #fetch(count: number): Promise<JsMsg[]> {
    const messages: JsMsg[] = [];
    for await (const message of await this.source.fetch({ max_messages: count, expires: FETCH_MS })) {
      if (message.info.streamSequence <= this.end) {
        messages.push(message);
        this.#held.add(message);
      } else {
        this.#beyond.add(message.info.streamSequence);
        message.nak(ACK_WAIT_MS);
      }
    }
    return messages;
  }

  async *#hand(messages: readonly JsMsg[]): AsyncGenerator<Logged> {
    let begun = 0;
    try {
      for (const message of messages) {
        yield { event: deliveryOf(message), applied: () => this.#applied(message) };
        begun++;
      }
    } finally {
      for (const message of messages.slice(begun)) {
        this.#held.delete(message);
        message.nak();
      }
    }
  }

  #applied(message: JsMsg): void {
    this.#held.delete(message);
    message.ack();
    this.#settle();
  }

  /** Events may be acked after the reading has ended: the timer ends with the last of them. */
  #settle(): void {
    if (this.#ended && this.#held.size === 0) clearInterval(this.#working);
  }
}
