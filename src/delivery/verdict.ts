import { createCache } from "../contracts/caches.js";
import type { DlqReason } from "../contracts/subjects.js";
import { AppError, codeOf, subjectOf } from "../kernel/errors.js";
import { backoff, MINUTE, SECOND } from "../kernel/time.js";

export interface RetryLimits {
  readonly maxAttempts: number;
  readonly retryBaseMs: number;
}

export type Verdict =
  | { readonly kind: "retry"; readonly delayMs: number }
  /** A server we need is unavailable: the message waits here and gets its attempt back. */
  | { readonly kind: "wait"; readonly delayMs: number }
  /** The server answers about others: the message goes back to the queue, and gets its attempt back. */
  | { readonly kind: "return"; readonly delayMs: number }
  | { readonly kind: "dead-letter"; readonly reason: DlqReason };

const RETRY_CAP_MS = 30 * SECOND;
const WAIT_BASE_MS = 200;
const WAIT_CAP_MS = 5 * SECOND;

const RETURN_BASE_MS = SECOND;
/** NATS gives a message up after 1,000 deliveries: some two days of these. */
const RETURN_CAP_MS = 5 * MINUTE;
/** Number of deliveries in which the delay doubles: it stays a small part of the time the message has waited. */
const RETURNS_A_DOUBLING = 4;

interface Tries {
  /** Number of attempts, this one included. */
  readonly attempt: number;
  /** Number of times in a row that the message has waited for a server. */
  readonly waits: number;
  /** Number of times NATS has delivered the message, this one included. */
  readonly deliveries: number;
}

export function verdict(error: unknown, { attempt, waits, deliveries }: Tries, limits: RetryLimits): Verdict {
  switch (codeOf(error)) {
    case "unavailable":
      if (subjectOf(error) !== undefined) {
        const doublings = 1 + deliveries / RETURNS_A_DOUBLING;
        return { kind: "return", delayMs: backoff(doublings, RETURN_BASE_MS, RETURN_CAP_MS) };
      }
      return { kind: "wait", delayMs: backoff(waits + 1, WAIT_BASE_MS, WAIT_CAP_MS) };
    case "invalid":
      return { kind: "dead-letter", reason: "invalid" };
    case "poison":
      return { kind: "dead-letter", reason: "poison" };
    default:
      return attempt >= limits.maxAttempts
        ? { kind: "dead-letter", reason: "exhausted" }
        : { kind: "retry", delayMs: Math.max(backoff(attempt, limits.retryBaseMs, RETRY_CAP_MS), earliest(error)) };
  }
}

const earliest = (error: unknown): number => (error instanceof AppError ? (error.retryAfterMs ?? 0) : 0);

/** Returns the error of a message that was begun too often without ever reporting back. */
export const crashed = (attempts: number): AppError =>
  new AppError("poison", `${attempts} attempts never ended: the process probably died in each`);

/** Maximum number of messages a second that come back to one subject, however many wait. */
const RETURNS_A_SECOND = 100;

/** Spaces the messages that go back to the queue, by the subject that they wait for. */
export class Returns {
  readonly #latest = createCache<number>("returns", { sizeOf: () => 0 });

  /** Returns when a message may come back, in ms from now: not before `atLeastMs`. */
  delayMs(subject: string, atLeastMs: number): number {
    const now = performance.now();
    const returnsAt = Math.max(now + atLeastMs, (this.#latest.get(subject) ?? 0) + SECOND / RETURNS_A_SECOND);
    this.#latest.set(subject, returnsAt);
    return Math.round(returnsAt - now);
  }
}
