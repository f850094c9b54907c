import { setMaxListeners } from "node:events";

export type Clock = () => number;

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

// A process has one: a clock handed down from the roles would be a parameter of all that dates or judges anything.
let sharedClock: Clock = () => Date.now();

/**
 * ms since the epoch by the clock that all processes share: that of Redis. Whatever is stored is dated and judged by it;
 * `Date.now()` is for deadlines and pauses within a process. Until a process has read the clock of Redis it is its own.
 */
export const sharedNow: Clock = () => sharedClock();

export function shareClock(clock: Clock): void {
  sharedClock = clock;
}

/** The wall clock may be set, and the monotonic clock stops while the machine is suspended. */
export interface ClockReading {
  readonly wall: number;
  readonly monotonic: number;
}

export const readClocks = (): ClockReading => ({ wall: sharedNow(), monotonic: performance.now() });

/**
 * Returns the time of a reading by the wall clock as it is set now, in whole ms since the epoch; never later than the
 * reading.
 */
export const wallTimeOf = ({ wall, monotonic }: ClockReading): number =>
  Math.min(wall, Math.floor(sharedNow() - (performance.now() - monotonic)));

const UNITS = [
  ["seconds", 1_000],
  ["microseconds", 1 / 1_000],
  ["nanoseconds", 1 / 1_000_000],
] as const;
/** A time in ms of the years 2001 to 2106. */
const isOfOurDays = (ms: number): boolean => ms >= 1e12 && ms < 4.3e12;

/** Returns the unit in which a number is a time of our days, while as ms it is in 1970 or in no year to come. */
export const wrongUnitOf = (time: number): string | undefined =>
  UNITS.find(([, factor]) => isOfOurDays(time * factor))?.[0];

export type Range = readonly [from: number, to: number];

export const randomMs = ([from, to]: Range): number => Math.round(from + Math.random() * (to - from));

/** Tells how many of `ms` from now on are left; 0 from then on. */
export function countdown(ms: number, now: Clock = () => performance.now()): () => number {
  const end = now() + ms;
  return () => Math.max(0, end - now());
}

/** Resolves early if `signal` aborts; never rejects, and does not keep the process alive. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, Math.max(0, ms));
    timer.unref();
    if (signal === undefined) return;
    // Node takes more than ten listeners for a leak, but many may wait for one signal.
    setMaxListeners(0, signal);
    signal.addEventListener("abort", done, { once: true });
  });
}

// The delay has full jitter, with a lower bound (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
// 2015).
export function backoff(attempt: number, baseMs: number, capMs: number): number {
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.min(attempt - 1, 30));
  const floor = Math.min(baseMs / 2, ceiling);
  return Math.round(floor + Math.random() * (ceiling - floor));
}
