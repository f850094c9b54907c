import { HOUR, MINUTE, SECOND } from "../../kernel/time.js";

interface Queue {
  readonly waiting: number;
  /** Number of requests that left the queue since its consumer was made. */
  readonly done: number;
}

/** An analysis of 500 posts takes a second or two. */
const ALONE_MS = 5 * SECOND;
const LOOK_EVERY_MS = 5 * SECOND;
const MAX_MS = 24 * HOUR;

/**
 * Estimates the ms until a new analysis is completed, from the last look at the queue. A consumer that was made anew
 * counts from 0, which tells no pace.
 */
export function createEstimate(look: () => Promise<Queue>, now: () => number = Date.now): () => number {
  let seen: (Queue & { readonly time: number }) | undefined;
  let eachMs = 0;
  let due = 0;
  const refresh = async (): Promise<void> => {
    const queue = await look();
    const time = now();
    const [passed, done] = seen ? [time - seen.time, queue.done - seen.done] : [0, 0];
    const wasBusy = seen !== undefined && seen.waiting > 0 && queue.waiting > 0;
    if (wasBusy && done === 0) eachMs = Math.max(eachMs, passed);
    // The queue may have been empty in between over a longer time.
    else if (wasBusy && done > 0 && passed <= MINUTE) eachMs = passed / done;
    seen = { ...queue, time };
  };
  return () => {
    if (now() >= due) {
      due = now() + LOOK_EVERY_MS;
      refresh().catch(() => undefined);
    }
    return Math.min(MAX_MS, ALONE_MS + (seen?.waiting ?? 0) * eachMs);
  };
}
