import type { Delivery } from "../../delivery/handler.js";
import { codeOf, oneLine } from "../../kernel/errors.js";
import { backoff, pause, SECOND } from "../../kernel/time.js";

interface PersistentOptions {
  /**
   * Told of an event that cannot be applied, and how often it was tried; once this resolves it counts as dealt with.
   * Where it rejects, so does the application.
   */
  readonly leftOut: (event: Delivery, error: unknown, attempts: number) => Promise<void> | void;
  /** Told what a server that is away says, each time it is waited for; unset: nobody waits here, and it is thrown. */
  readonly waiting?: (error: string) => void;
  readonly stopping: AbortSignal;
  /** First delay between attempts, in ms; a second unless told otherwise. */
  readonly delayMs?: number;
}

/** What can never be applied, whoever tries: it was given up when it was planned. */
export const isHopeless = (error: unknown): boolean => ["invalid", "poison"].includes(codeOf(error));

const MAX_ATTEMPTS = 3;
const DELAY_CAP_MS = 15 * SECOND;

/**
 * Makes the application of events go on past what goes wrong: a server that
 * is away is waited for, as long as it takes; what fails by itself is tried
 * three times, what can never work once, and is then left out.
 *
 * @throws what it last failed with, where the process stops meanwhile or nobody waits: the event is not applied
 */
export function persistent(
  apply: (event: Delivery) => Promise<void>,
  { leftOut, waiting, stopping, delayMs = SECOND }: PersistentOptions,
): (event: Delivery) => Promise<void> {
  return async (event) => {
    let failures = 0;
    for (let attempt = 1; ; attempt++) {
      try {
        return await apply(event);
      } catch (error) {
        if (stopping.aborted) throw error;
        if (codeOf(error) === "unavailable") {
          if (waiting === undefined) throw error;
          waiting(oneLine(error));
        } else if (++failures >= MAX_ATTEMPTS || isHopeless(error)) {
          await leftOut(event, error, failures);
          return;
        }
        await pause(backoff(attempt, delayMs, DELAY_CAP_MS), stopping);
        if (stopping.aborted) throw error;
      }
    }
  };
}
