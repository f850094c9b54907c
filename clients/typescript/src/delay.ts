const MIN_MS = 1_000;
const MAX_MS = 30_000;
/** A longer time that a server names is cut to this. */
const MAX_NAMED_MS = 3_600_000;

/**
 * Returns the time before the next try, ms: the time that the server names, or a second, and a random time that doubles
 * with each failure, up to half a minute. So clients that lose a server at the same time come back one by one.
 *
 * @param namedMs the time that the server names; 0: none
 */
export function delayOf(failures: number, namedMs: number, random: () => number = Math.random): number {
  return Math.min(Math.max(namedMs, MIN_MS), MAX_NAMED_MS) + random() * Math.min(MIN_MS * 2 ** failures, MAX_MS);
}

/** Resolves after a time, or rejects with the reason of the signal. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
  });
}
