import { AppError } from "../kernel/errors.js";
import { SECOND } from "../kernel/time.js";

/** The answer needs this long to reach the caller, longer from a process under load. */
const MARGIN_MIN_MS = 50;
const MARGIN_MAX_MS = SECOND;
const MARGIN_SHARE = 0.1;

/** ms since the epoch. */
export function readDeadline(callerDeadline: number, maxMs: number): number {
  const now = Date.now();
  const left = Math.min(callerDeadline - now, maxMs);
  return now + left - Math.min(MARGIN_MAX_MS, Math.max(MARGIN_MIN_MS, left * MARGIN_SHARE));
}

interface Waiting {
  /** ms since the epoch. */
  readonly deadline: number;
  readonly late: () => void;
}

const CHECK_MS = 10;

// One timer for all of them: a timer each is a tenth of what a read costs.
const waiting = new Set<Waiting>();
let timer: NodeJS.Timeout | undefined;

/** Rejects at most 10 ms after the deadline; the work goes on. */
export function withDeadline<T>(work: Promise<T>, deadline: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new AppError("deadline", "the timeline is still being rebuilt"));
    const one: Waiting = { deadline, late };
    waiting.add(one);
    timer ??= setInterval(rejectLate, CHECK_MS).unref();
    work.then(
      (result) => {
        waiting.delete(one);
        resolve(result);
      },
      (error: unknown) => {
        waiting.delete(one);
        reject(error);
      },
    );
  });
}

function rejectLate(): void {
  const now = Date.now();
  for (const one of waiting) {
    if (one.deadline > now) continue;
    waiting.delete(one);
    one.late();
  }
  if (waiting.size > 0) return;
  clearInterval(timer);
  timer = undefined;
}
