import { oneLine } from "../kernel/errors.js";

/** An event of the outbox, as it is to be published. */
export interface OutboxEvent {
  readonly id: number;
  /** What it is about; events of one key are published in the order they were written. */
  readonly key: string;
  readonly subject: string;
  /** `Nats-Msg-Id` */
  readonly messageId: string;
  /** JSON */
  readonly body: string;
  readonly traceparent?: string | undefined;
  /** When it was written, ms since the epoch by the database's clock. */
  readonly createdAt: number;
}

/** The events one service has written and that are not published yet. */
export interface OutboxStore {
  /**
   * Takes events nobody has in hand, at most `limit` and for `leaseMs`: the oldest of each owner in turn, of each key
   * the first only, and none while an earlier one of its key is not published.
   */
  claim(limit: number, leaseMs: number): Promise<OutboxEvent[]>;
  markPublished(ids: readonly number[]): Promise<void>;
  /**
   * Counts that NATS refused an event, which is claimed by nobody for `againMs`, and for twice as long each time after, a minute at most;
   * returns how often it was.
   */
  refuse(id: number, againMs: number): Promise<number>;
  /** Gives back what could not be published, for whoever comes next. */
  release(ids: readonly number[]): Promise<void>;
  /** Removes at most `limit` events published longer ago than `ageMs`; returns how many. */
  prune(ageMs: number, limit: number): Promise<number>;
  /** What waits, and how long its oldest has, in ms. */
  backlog(): Promise<{ readonly waiting: number; readonly oldestMs: number }>;
}

/** NATS does not take an event for what it is, and not because a server is away or full. */
export class EventRefused extends Error {
  /**
   * @param reason as the dead letter will have it
   * @param always whether it can never be taken
   */
  constructor(
    readonly reason: "toolarge" | "poison",
    readonly always: boolean,
    options: { readonly cause: unknown },
  ) {
    super(oneLine(options.cause), options);
  }
}

/**
 * Publishes one event; resolves after its PubAck. Rejects with EventRefused, or with AppError `unavailable` while a
 * server is away or a stream is full.
 */
export type PublishEvent = (event: OutboxEvent) => Promise<void>;
