import {
  AckPolicy,
  type Consumer,
  type ConsumerInfo,
  DeliverPolicy,
  type JetStreamManager,
  type JsMsg,
  type NatsConnection,
  NatsError,
  nanos,
} from "nats";
import { STREAM } from "../../contracts/subjects.js";
import { AppError, oneLine } from "../../kernel/errors.js";
import { DAY, pause, SECOND } from "../../kernel/time.js";
import { deliveryOf } from "../../platform/nats/message.js";
import type { ReadStretch, Stretch, Take } from "./ports.js";

/** A stretch of the log whose progress is kept by NATS: who is stopped, or killed, goes on where it was. */
export interface Resumable {
  /** Hands out what has not been applied yet; an event counts as applied once `applied` was called. */
  readonly read: ReadStretch;
  /** Somebody has begun it before. */
  readonly resumed: boolean;
  /** How many events were to be applied when it was opened. */
  readonly left: number;
  /** Forgets how far it is. */
  forget(): Promise<void>;
}

/** What a process that was killed had in hand comes again after this long. */
const ACK_WAIT_MS = 10 * SECOND;
const KEPT_MS = DAY;
const A_BATCH = 200;
const FETCH_MS = SECOND;
/** A server that hands out nothing for so many fetches, although there is something, has stopped answering. */
const MAX_EMPTY = 15;
const CONSUMER_NOT_FOUND = 10014;

/**
 * Opens a stretch of `DROPS` under a name, made of `[A-Za-z0-9_-]`. Where that
 * was begun before and not finished, a day ago at the most, it goes on from
 * there, up to the end that is given now; its beginning stays as it was.
 *
 * @throws AppError `unavailable` where NATS cannot be asked, here and while it is read
 */
export async function openResumable(
  nats: NatsConnection,
  name: string,
  { stopping, ...stretch }: Stretch & { readonly stopping: AbortSignal },
): Promise<Resumable> {
  return asking(async () => {
    const manager = await nats.jetstreamManager();
    const known = await infoOf(manager, name);
    const opened =
      known ??
      (await manager.consumers.add(STREAM.drops, {
        durable_name: name,
        description: "A replay by hand; it goes by itself a day after it was left",
        deliver_policy: DeliverPolicy.StartTime,
        opt_start_time: new Date(stretch.from).toISOString(),
        ack_policy: AckPolicy.Explicit,
        ack_wait: nanos(ACK_WAIT_MS),
        inactive_threshold: nanos(KEPT_MS),
        max_ack_pending: 2 * A_BATCH,
      }));
    const end = await lastBefore(manager, stretch.to);
    const source = await nats.jetstream().consumers.get(STREAM.drops, name);
    return {
      read: (_, take) => asking(() => new Reading(source, end, stopping).run(take)),
      resumed: known !== undefined,
      left: freshIn(opened, end) + opened.num_ack_pending,
      forget: () => forgetResumable(nats, name),
    };
  });
}

/** Forgets how far a stretch is, if anybody knows. */
export async function forgetResumable(nats: NatsConnection, name: string): Promise<void> {
  await asking(async () => {
    const manager = await nats.jetstreamManager();
    if (await infoOf(manager, name)) await manager.consumers.delete(STREAM.drops, name);
  });
}

async function infoOf(manager: JetStreamManager, name: string): Promise<ConsumerInfo | undefined> {
  try {
    return await manager.consumers.info(STREAM.drops, name);
  } catch (error) {
    if (error instanceof NatsError && error.api_error?.err_code === CONSUMER_NOT_FOUND) return undefined;
    throw error;
  }
}

/** The sequence of the last event stored before a time; undefined: of the last there is. */
async function lastBefore(manager: JetStreamManager, to: number | undefined): Promise<number> {
  if (to === undefined) return (await manager.streams.info(STREAM.drops)).state.last_seq;
  // The server finds the first event from then on for whoever wants to begin there.
  const probe = await manager.consumers.add(STREAM.drops, {
    deliver_policy: DeliverPolicy.StartTime,
    opt_start_time: new Date(to).toISOString(),
    ack_policy: AckPolicy.None,
    inactive_threshold: nanos(10 * SECOND),
  });
  await manager.consumers.delete(STREAM.drops, probe.name).catch(() => undefined);
  return probe.delivered.stream_seq;
}

/** How many events up to `end` have never been handed out. */
const freshIn = ({ num_pending, delivered }: ConsumerInfo, end: number): number =>
  Math.max(0, Math.min(num_pending, end - delivered.stream_seq));

class Reading {
  /** Handed to this process and not applied yet. */
  readonly #held = new Set<JsMsg>();
  /** Handed to this process, from beyond the end; they stay unapplied. */
  readonly #beyond = new Set<number>();

  constructor(
    private readonly source: Consumer,
    private readonly end: number,
    private readonly stopping: AbortSignal,
  ) {}

  async run(take: Take): Promise<void> {
    const working = setInterval(() => {
      for (const message of this.#held) message.working();
    }, ACK_WAIT_MS / 3);
    working.unref();
    // What is under way is acknowledged after this has ended: the timer ends with the last of it.
    const settled = (): void => {
      if (this.#held.size === 0) clearInterval(working);
    };
    try {
      await this.#all(take, settled);
    } finally {
      settled();
    }
  }

  async #all(take: Take, settled: () => void): Promise<void> {
    for (let empty = 0; !this.stopping.aborted; ) {
      const info = await this.source.info();
      const fresh = freshIn(info, this.end);
      // A run that was killed had these in hand, or another has them now.
      const elsewhere = info.num_ack_pending - this.#held.size - this.#beyond.size;
      if (fresh <= 0 && elsewhere <= 0) return;
      const messages = await this.#fetch(Math.min(A_BATCH, Math.max(fresh, elsewhere)));
      empty = messages.length === 0 && fresh > 0 ? empty + 1 : 0;
      if (empty >= MAX_EMPTY) throw new AppError("unavailable", "the log stopped answering");
      if (messages.length === 0) await pause(SECOND / 4, this.stopping);
      if (!(await this.#hand(messages, take, settled))) return;
    }
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

  async #hand(messages: readonly JsMsg[], take: Take, settled: () => void): Promise<boolean> {
    for (const [index, message] of messages.entries()) {
      const applied = (): void => {
        this.#held.delete(message);
        message.ack();
        settled();
      };
      if (await take(deliveryOf(message), applied)) continue;
      for (const rest of messages.slice(index)) {
        this.#held.delete(rest);
        rest.nak();
      }
      return false;
    }
    return true;
  }
}

async function asking<T>(ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError("unavailable", `NATS: ${oneLine(error)}`, { cause: error });
  }
}
