import type { DlqReason } from "../contracts/subjects.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { backoff, SECOND } from "../kernel/time.js";

/** How often and how slowly a failing message is tried again. */
export interface RetryLimits {
  readonly maxAttempts: number;
  readonly retryBaseMs: number;
}

/** What to do with a message whose handling threw. */
export type Verdict =
  | { readonly kind: "retry"; readonly delayMs: number }
  /** A server we need is away: keep the message, give the attempt back, try here again after this time. */
  | { readonly kind: "wait"; readonly delayMs: number }
  | { readonly kind: "dead-letter"; readonly reason: DlqReason };

const RETRY_CAP_MS = 30 * SECOND;
const WAIT_BASE_MS = 200;
const WAIT_CAP_MS = 5 * SECOND;

/**
 * The failure policy.
 *
 * @param attempt how often the handling was begun, this time included
 * @param waits how often this message has waited for a server in a row
 */
export function verdict(error: unknown, attempt: number, waits: number, limits: RetryLimits): Verdict {
  switch (codeOf(error)) {
    case "unavailable":
      return { kind: "wait", delayMs: backoff(waits + 1, WAIT_BASE_MS, WAIT_CAP_MS) };
    case "invalid":
      return { kind: "dead-letter", reason: "invalid" };
    case "poison":
      return { kind: "dead-letter", reason: "poison" };
    default:
      return attempt >= limits.maxAttempts
        ? { kind: "dead-letter", reason: "exhausted" }
        : { kind: "retry", delayMs: backoff(attempt, limits.retryBaseMs, RETRY_CAP_MS) };
  }
}

/** What a message that was begun too often without ever reporting back is charged with. */
export const crashed = (attempts: number): AppError =>
  new AppError(
    "poison",
    `its handling was begun ${attempts} times and never reported back: it ends the process that handles it`,
  );
