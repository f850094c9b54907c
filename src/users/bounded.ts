import pLimit from "p-limit";
import { AppError } from "../kernel/errors.js";

/** How much reads may ask of the database. */
export interface ReadBounds {
  /** Queries at once. */
  readonly atOnce: number;
  /** Queries that wait for their turn. */
  readonly waiting: number;
}

/** Runs work with so much of it at once. */
export type Bounded = <Result>(work: () => Promise<Result>) => Promise<Result>;

/**
 * Bounds what reads ask of the database, so that writes get their connections while the cache is away.
 *
 * @throws AppError `unavailable` where too much waits already
 */
export function createBounded({ atOnce, waiting }: ReadBounds): Bounded {
  const limit = pLimit(atOnce);
  return (work) => {
    if (limit.pendingCount >= waiting)
      return Promise.reject(new AppError("unavailable", "too many reads wait for the database"));
    return limit(work);
  };
}
