export type Clock = () => number;

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** A moment by `Date.now()`, which may be set, and by `performance.now()`, which a suspended machine stops. */
export interface Moment {
  readonly wall: number;
  readonly steady: number;
}

export const momentNow = (): Moment => ({ wall: Date.now(), steady: performance.now() });

/** In whole ms since the epoch, by the clock as it is set now; no later than the moment was. */
export const timeOf = ({ wall, steady }: Moment): number =>
  Math.min(wall, Math.floor(Date.now() - (performance.now() - steady)));

/** Resolves early where `signal` aborts; never rejects, and does not keep the process alive. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    timer.unref();
    signal?.addEventListener("abort", done, { once: true });
  });
}

// M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015: full jitter, with a lower bound.
export function backoff(attempt: number, baseMs: number, capMs: number): number {
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.min(attempt - 1, 30));
  const floor = Math.min(baseMs / 2, ceiling);
  return Math.round(floor + Math.random() * (ceiling - floor));
}
