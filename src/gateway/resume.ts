import type { FeedState } from "./feed.nats.js";
import type { Notification } from "./notification.js";

export const RESET_REASONS = ["unknown_position", "too_old", "registration_lost", "stream_replaced"] as const;
export type ResetReason = (typeof RESET_REASONS)[number];

const MAX_BUFFERED = 256;
const MAX_BUFFERED_CHARS = 256 * 1024;

/** The first live notifications that arrive while a session catches up; the others are read from the stream later. */
export class LiveBuffer {
  count = 0;
  highest = 0;
  #notifications: Notification[] = [];
  #chars = 0;
  #full = false;

  add(notification: Notification): void {
    this.count++;
    this.highest = Math.max(this.highest, notification.seq);
    this.#full ||= this.#notifications.length >= MAX_BUFFERED || this.#chars >= MAX_BUFFERED_CHARS;
    if (this.#full) return;
    this.#notifications.push(notification);
    this.#chars += notification.content?.data.length ?? 0;
  }

  get first(): Notification | undefined {
    return this.#notifications[0];
  }

  shift(): void {
    this.#chars -= this.#notifications.shift()?.content?.data.length ?? 0;
    if (this.#notifications.length === 0) this.#full = false;
  }
}

const [NEW_DROP, DROP_DELETED] = ["new_drop\n", "drop_deleted\n"];

/** The newest keys are in a plain set: an LRU package takes 1.4 to 13 KB a stream, an empty set 0.2 KB. */
export class RecentKeys {
  readonly #keys = new Set<string>();
  /** If no deletion was ever added, none is looked for: that takes 2 µs. */
  #hasDeletions = false;

  constructor(private readonly capacity: number) {}

  get size(): number {
    return this.#keys.size;
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** A deletion after the drop is not repeated, even if one was sent before: the drop may have overtaken that one. */
  isRepeated(key: string): boolean {
    const known = this.#keys.delete(key);
    this.#keys.add(key);
    this.#hasDeletions ||= key.startsWith(DROP_DELETED);
    if (this.#hasDeletions && !known && key.startsWith(NEW_DROP))
      this.#keys.delete(DROP_DELETED + key.slice(NEW_DROP.length));
    if (this.#keys.size > this.capacity) this.#keys.delete(this.#keys.values().next().value as string);
    return known;
  }
}

export const MAX_REPLAYED = 1_024;

interface ReadHistory {
  readonly position: number;
  readonly count: number;
  readonly state: FeedState;
  /** The user's oldest notification after the read. */
  readonly oldest?: number | undefined;
}

/**
 * Returns undefined if the history after a position is complete. Two limits remove notifications: age, from
 * the front of the whole stream, and the limit per user. Age removed none after the position as long as the stream's
 * first sequence is at most the next one. The limit removes a user's oldest notification for each one above it: it
 * removed none after the position if fewer are known than the limit, or if NOTIFY still has one at or below the position.
 * `state` and `oldest` must be newer than the read.
 */
export function historyFault({ position, count, state, oldest }: ReadHistory): ResetReason | undefined {
  if (position > state.lastSeq) return "unknown_position";
  if (state.firstSeq > position + 1) return "too_old";
  if (count >= MAX_REPLAYED) return "too_old";
  if (count >= state.perSubject && !(oldest !== undefined && oldest <= position)) return "too_old";
  return undefined;
}
