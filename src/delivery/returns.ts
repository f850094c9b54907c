import { LRUCache } from "lru-cache";
import { SECOND } from "../kernel/time.js";

/** So many messages that wait for one subject come back in a second, however many wait. */
const RETURNS_A_SECOND = 100;
const MAX_SUBJECTS = 1_000;

/** Spaces the messages that go back to the queue, by the subject that they wait for. */
export class Returns {
  readonly #latest = new LRUCache<string, number>({ max: MAX_SUBJECTS });

  /** When a message may come back, ms from now: not before `atLeastMs`. */
  delayMs(subject: string, atLeastMs: number): number {
    const now = performance.now();
    const at = Math.max(now + atLeastMs, (this.#latest.get(subject) ?? 0) + SECOND / RETURNS_A_SECOND);
    this.#latest.set(subject, at);
    return Math.round(at - now);
  }
}
