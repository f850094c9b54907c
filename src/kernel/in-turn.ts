import pLimit from "p-limit";
import { AppError } from "./errors.js";

/** Runs a piece of work when its turn comes: first come, first served. */
export type InTurn = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Bounds the pieces of work under way, and those that wait.
 *
 * @throws AppError `exhausted`, at once, where as many wait as may
 */
export function createInTurn(bounds: { readonly atOnce: number; readonly waiting: number }): InTurn {
  const limit = pLimit(bounds.atOnce);
  return async (work) => {
    if (limit.activeCount + limit.pendingCount >= bounds.atOnce + bounds.waiting)
      throw new AppError("exhausted", "too much work is waiting");
    return limit(work);
  };
}
