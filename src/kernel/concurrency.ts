import { AppError } from "./errors.js";
import { pause, SECOND } from "./time.js";

/** Results keep the items' order. The first failure rejects; nothing starts after it. */
export async function mapLimited<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T, index: number) => Promise<R>,
): Promise<R[]> {
  const results = new Array<R>(items.length);
  // All workers share one generator. A worker that fails leaves its loop, which ends the generator for the others too.
  const remaining = (function* () {
    yield* items.entries();
  })();
  const worker = async (): Promise<void> => {
    for (const [index, item] of remaining) results[index] = await work(item, index);
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}

/** Works as Promise.all, but a failure waits for the end of the others. */
export async function allOf<T extends readonly unknown[] | []>(
  all: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  const failed = (await Promise.allSettled(all)).find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
  return Promise.all(all);
}

export function chunked<T>(items: readonly T[], size: number): T[][] {
  const pieces: T[][] = [];
  for (let start = 0; start < items.length; start += size) pieces.push(items.slice(start, start + size));
  return pieces;
}

/** Groups keep the order of the items; the groups are in the order of their first items. */
export function grouped<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

/** Runs work in the order in which it came; work of one owner takes at most half of the places. */
export type BoundedQueue = <T>(work: () => Promise<T>, owner?: string) => Promise<T>;

interface Queued {
  readonly owner: string | undefined;
  begin(): Promise<void>;
}

/** A bounded queue. Throws AppError `exhausted`, or `refusal`, at once while `waiting` pieces of work wait. */
export function createBoundedQueue({
  atOnce,
  waiting,
  refusal = () => new AppError("exhausted", "too much work is waiting"),
}: {
  readonly atOnce: number;
  readonly waiting: number;
  readonly refusal?: () => AppError;
}): BoundedQueue {
  const share = Math.ceil(atOnce / 2);
  const shareWaiting = Math.ceil(waiting / 2);
  const queue: Queued[] = [];
  const owned = new Map<string, number>();
  let underWay = 0;
  const count = (owner: string | undefined, change: number): void => {
    if (owner === undefined) return;
    const now = (owned.get(owner) ?? 0) + change;
    if (now === 0) owned.delete(owner);
    else owned.set(owner, now);
  };
  const mayBegin = ({ owner }: Queued): boolean => owner === undefined || (owned.get(owner) ?? 0) < share;
  const fill = (): void => {
    while (underWay < atOnce) {
      const index = queue.findIndex(mayBegin);
      if (index < 0) return;
      const [next] = queue.splice(index, 1) as [Queued];
      underWay++;
      count(next.owner, 1);
      void next.begin().finally(() => {
        underWay--;
        count(next.owner, -1);
        fill();
      });
    }
  };
  return async (work, owner) => {
    if (underWay + queue.length >= atOnce + waiting) throw refusal();
    const waitsOfOwner = owner === undefined ? 0 : queue.filter((waiter) => waiter.owner === owner).length;
    if (waitsOfOwner > shareWaiting) throw refusal();
    return new Promise((resolve, reject) => {
      queue.push({ owner, begin: () => Promise.resolve().then(work).then(resolve, reject) });
      fill();
    });
  };
}

/** Resolves when the caller may begin; `weight`: how many it counts for. */
export type Throttle = (stopping?: AbortSignal, weight?: number) => Promise<void>;

/** Lets `rate` callers a second begin. Unused capacity is not saved up. */
export function createThrottle(rate: number): Throttle {
  let next = 0;
  return async (stopping, weight = 1) => {
    const now = performance.now();
    const mine = Math.max(next, now);
    next = mine + (weight * SECOND) / rate;
    if (mine > now) await pause(mine - now, stopping);
  };
}

interface Pace {
  readonly throttle?: Throttle | undefined;
  readonly atOnce: number;
  readonly stopping?: AbortSignal | undefined;
}

/** `throttle` delays each item. Rejects with the first failure, after the work in flight has ended. */
export async function paced<T>(
  items: Iterable<T> | AsyncIterable<T>,
  { throttle, atOnce, stopping }: Pace,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const inFlight = new Set<Promise<void>>();
  let failure: { readonly error: unknown } | undefined;
  try {
    for await (const item of items) {
      await throttle?.(stopping);
      if (failure || stopping?.aborted) break;
      const working = work(item)
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => inFlight.delete(working));
      inFlight.add(working);
      if (inFlight.size >= atOnce) await Promise.race(inFlight);
    }
  } finally {
    await Promise.all(inFlight);
  }
  if (failure) throw failure.error;
}
