import { parseStored, type TimelineEvent } from "../contracts/events.js";
import type { Delivery } from "../delivery/handler.js";
import { createThrottle, paced } from "../kernel/concurrency.js";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import { backoff, pause, SECOND } from "../kernel/time.js";
import type { TimeRange } from "./reconcile/reconcile.js";

/** Reads the events admitted in a range, oldest first. `after` leaves out those up to a sequence. */
export type ReadRange = (range: TimeRange & { readonly after?: number | undefined }) => AsyncIterable<Delivery>;

/** Applies an event that was admitted at `time` (ms since the epoch) again, without notifying anybody. */
export type ApplyEvent = (event: TimelineEvent, admission: { readonly time: number }) => Promise<void>;

export const parsed =
  (apply: ApplyEvent) =>
  async (event: Delivery): Promise<void> =>
    apply(parseStored(event.subject, event.body, event.time), event);

const AT_ONCE = 32;

/** Applies events in any order; one that is applied already changes nothing. Returns the number of events. */
export async function replay(
  events: AsyncIterable<Delivery>,
  apply: (event: Delivery) => Promise<void>,
  { rate, stopping }: { readonly rate?: number; readonly stopping?: AbortSignal } = {},
): Promise<number> {
  let done = 0;
  const throttle = rate === undefined ? undefined : createThrottle(rate);
  await paced(events, { throttle, atOnce: AT_ONCE, stopping }, async (event) => {
    await apply(event);
    done++;
  });
  return done;
}

interface RetryOptions {
  /** Called for an event that cannot be applied, with its attempts. If it rejects, so does the application. */
  readonly leftOut: (event: Delivery, error: unknown, attempts: number) => Promise<void> | void;
  /** Returns true if another call has to be awaited first. */
  readonly isBusy?: (error: unknown) => boolean;
  /** Called each time an outage is waited for. Default: an outage is thrown. */
  readonly waiting?: (error: string) => void;
  readonly stopping: AbortSignal;
  readonly delayMs?: number;
}

/** Returns true for an error of every process: the event became a dead letter when it was planned. */
export const isPermanent = (error: unknown): boolean => ["invalid", "poison"].includes(codeOf(error));

const MAX_ATTEMPTS = 3;
const DELAY_CAP_MS = 15 * SECOND;
const BUSY_MS = SECOND / 4;

/** @throws the last error, if the process stops meanwhile or outages are not waited for: the event is not applied */
export function retrying(
  apply: (event: Delivery) => Promise<void>,
  { leftOut, isBusy = () => false, waiting, stopping, delayMs = SECOND }: RetryOptions,
): (event: Delivery) => Promise<void> {
  return async (event) => {
    let failures = 0;
    for (let attempt = 1; ; attempt++) {
      try {
        return await apply(event);
      } catch (error) {
        if (stopping.aborted) throw error;
        // A busy call is neither an outage nor a failure.
        if (isBusy(error)) {
          await pause(BUSY_MS, stopping);
          attempt--;
          continue;
        }
        if (codeOf(error) === "unavailable") {
          if (waiting === undefined) throw error;
          waiting(oneLine(error));
        } else if (++failures >= MAX_ATTEMPTS || isPermanent(error)) {
          await leftOut(event, error, failures);
          return;
        }
        const retryAfterMs = error instanceof AppError ? (error.retryAfterMs ?? 0) : 0;
        await pause(Math.max(backoff(attempt, delayMs, DELAY_CAP_MS), retryAfterMs), stopping);
        if (stopping.aborted) throw error;
      }
    }
  };
}
