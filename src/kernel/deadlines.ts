import { AppError } from "./errors.js";
import { SECOND } from "./time.js";

/** The answer needs this long to reach the caller, longer from a process under load. */
const MARGIN_MIN_MS = 50;
const MARGIN_MAX_MS = SECOND;
const MARGIN_SHARE = 0.1;

/** Both times are in ms since the epoch. */
export interface ReadDeadlines {
  readonly deadline: number;
  /** Past the deadline what was asked for before may still arrive, and a degraded page may be read from Redis. */
  readonly latest: number;
}

export function readDeadlines(callerDeadline: number, maxMs: number): ReadDeadlines {
  const now = Date.now();
  const left = Math.min(callerDeadline - now, maxMs);
  const margin = Math.min(MARGIN_MAX_MS, Math.max(MARGIN_MIN_MS, left * MARGIN_SHARE));
  return { deadline: now + left - margin, latest: now + left - margin / 2 };
}

interface Waiting {
  /** The deadline is in ms since the epoch. */
  readonly deadline: number;
  readonly reject: (error: AppError) => void;
  /** This is its index in `waiting`. */
  at: number;
}

const CHECK_MS = 10;

/** Rejects at most 10 ms after the deadline; the work goes on. */
export type WithDeadline = <T>(work: Promise<T>, deadline: number) => Promise<T>;

/**
 * All share one timer: a timer each is a tenth of what a read costs. A Set would not do: one that lives long keeps what
 * was deleted from it until a full collection.
 */
export function createWithDeadline(): WithDeadline {
  const waiting: Waiting[] = [];
  let timer: NodeJS.Timeout | undefined;

  /** The last one takes its place. */
  const remove = (one: Waiting): void => {
    if (waiting[one.at] !== one) return;
    const last = waiting.pop() as Waiting;
    if (last === one) return;
    waiting[one.at] = last;
    last.at = one.at;
  };

  const rejectLate = (): void => {
    const now = Date.now();
    for (const one of waiting.filter(({ deadline }) => deadline <= now)) {
      remove(one);
      one.reject(new AppError("deadline", "the timeline could not be read in time"));
    }
    if (waiting.length > 0) return;
    clearInterval(timer);
    timer = undefined;
  };

  return (work, deadline) =>
    new Promise((resolve, reject) => {
      const one: Waiting = { deadline, reject, at: waiting.length };
      waiting.push(one);
      timer ??= setInterval(rejectLate, CHECK_MS).unref();
      work.then(
        (result) => {
          remove(one);
          resolve(result);
        },
        (error: unknown) => {
          remove(one);
          reject(error);
        },
      );
    });
}
