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
  const remainingMs = Math.min(callerDeadline - now, maxMs);
  const margin = Math.min(MARGIN_MAX_MS, Math.max(MARGIN_MIN_MS, remainingMs * MARGIN_SHARE));
  return { deadline: now + remainingMs - margin, latest: now + remainingMs - margin / 2 };
}

/** Rejects at the deadline, in ms since the epoch; the work goes on. */
export function withDeadline<T>(work: Promise<T>, deadline: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new AppError("deadline", "the timeline could not be read in time"));
    const timer = setTimeout(late, Math.max(0, deadline - Date.now())).unref();
    work.then(
      (result) => {
        clearTimeout(timer);
        resolve(result);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
