import type { DlqReason } from "../contracts/subjects.js";
import { AppError, codeOf } from "../kernel/errors.js";
import { backoff, SECOND } from "../kernel/time.js";

export interface RetryLimits {
  readonly maxAttempts: number;
  readonly retryBaseMs: number;
}

export type Verdict =
  | { readonly kind: "retry"; readonly delayMs: number }
  /** A server we need is unavailable: the message waits here and gets its attempt back. */
  | { readonly kind: "wait"; readonly delayMs: number }
  | { readonly kind: "dead-letter"; readonly reason: DlqReason };

const RETRY_CAP_MS = 30 * SECOND;
const WAIT_BASE_MS = 200;
const WAIT_CAP_MS = 5 * SECOND;

/** `attempt` counts this one; `waits` for a server, in a row. */
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

/** For a message that was begun too often without ever reporting back. */
export const crashed = (attempts: number): AppError =>
  new AppError("poison", `${attempts} attempts never ended: the process probably died in each`);
