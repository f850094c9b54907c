import pLimit from "p-limit";
import { AppError } from "../kernel/errors.js";

export type Bounded = <Result>(work: () => Promise<Result>) => Promise<Result>;

/** Limits the queries of reads, so that writes get connections while the cache is away. */
export function createBounded({ atOnce, waiting }: { readonly atOnce: number; readonly waiting: number }): Bounded {
  const limit = pLimit(atOnce);
  return (work) => {
    if (limit.pendingCount >= waiting)
      return Promise.reject(new AppError("unavailable", "too many reads wait for the database"));
    return limit(work);
  };
}
