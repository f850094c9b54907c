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
   * Takes the oldest events nobody has in hand, at most `limit` and for `leaseMs`: of each key the first only, and none
   * while an earlier one of its key is not published.
   */
  claim(limit: number, leaseMs: number): Promise<OutboxEvent[]>;
  markPublished(ids: readonly number[]): Promise<void>;
  /** Gives back what could not be published, for whoever comes next. */
  release(ids: readonly number[]): Promise<void>;
  /** Removes at most `limit` events published longer ago than `ageMs`; returns how many. */
  prune(ageMs: number, limit: number): Promise<number>;
  /** What waits, and how long its oldest has, in ms. */
  backlog(): Promise<{ readonly waiting: number; readonly oldestMs: number }>;
}

/** Publishes one event; resolves after its PubAck. */
export type PublishEvent = (event: OutboxEvent) => Promise<void>;
