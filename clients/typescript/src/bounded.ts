import { TimelineError } from "./errors.js";

interface Bounds {
  /** The work ends with this signal. */
  readonly signal: AbortSignal | undefined;
  /** Maximum time, ms, after a start of the clock. */
  readonly ms: number;
}

export interface Clock {
  /** Begins to count from 0. */
  start(): void;
  stop(): void;
}

/**
 * Runs work that ends with the caller's signal, and after a time on its clock, which runs from the beginning. Its own
 * signal is aborted at the end, so that nothing of it goes on.
 */
export async function bounded<Result>(
  { signal, ms }: Bounds,
  work: (signal: AbortSignal, clock: Clock) => Promise<Result>,
): Promise<Result> {
  const ending = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const clock = {
    stop: () => clearTimeout(timer),
    start: () => {
      clearTimeout(timer);
      timer = setTimeout(() => ending.abort(new TimelineError(`nothing came for ${ms} ms`)), ms);
    },
  };
  const cancel = (): void => ending.abort(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", cancel, { once: true });
  // A token function or a fetch that ignores its signal ends here, too.
  const aborted = new Promise<never>((_, reject) => {
    ending.signal.addEventListener("abort", () => reject(ending.signal.reason), { once: true });
  });
  try {
    clock.start();
    return await Promise.race([work(ending.signal, clock), aborted]);
  } finally {
    clock.stop();
    signal?.removeEventListener("abort", cancel);
    ending.abort();
  }
}
