import { pause, SECOND } from "./time.js";

/** Resolves when the next piece of work may begin, or the signal aborts. */
export type Turn = (stopping?: AbortSignal) => Promise<void>;

/** Hands out so many turns a second, evenly; a turn that was not taken is not made up for. */
export function createTurns(rate: number): Turn {
  let next = 0;
  return async (stopping) => {
    const now = performance.now();
    const mine = Math.max(next, now);
    next = mine + SECOND / rate;
    if (mine > now) await pause(mine - now, stopping);
  };
}

/** How fast work is begun. */
export interface Pace {
  /** Unset: as fast as it goes. */
  readonly turn?: Turn | undefined;
  /** Pieces under way at a time. */
  readonly atOnce: number;
  /** Begins nothing new once it aborts. */
  readonly stopping?: AbortSignal | undefined;
}

/**
 * Works on each item, in their order, at a pace; resolves once all that was
 * begun is done. The first failure ends it, after what is under way.
 */
export async function paced<T>(
  items: Iterable<T> | AsyncIterable<T>,
  { turn, atOnce, stopping }: Pace,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const underWay = new Set<Promise<void>>();
  let failure: { readonly error: unknown } | undefined;
  for await (const item of items) {
    await turn?.(stopping);
    if (failure || stopping?.aborted) break;
    const working = work(item)
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => underWay.delete(working));
    underWay.add(working);
    if (underWay.size >= atOnce) await Promise.race(underWay);
  }
  await Promise.all(underWay);
  if (failure) throw failure.error;
}
