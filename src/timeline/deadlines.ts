import { AppError } from "../kernel/errors.js";

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
