import { mapLimited } from "./concurrency.js";
import { codeOf } from "./errors.js";

/** Concurrent callers for the same key share one run. */
export class SingleFlight<T> {
  readonly #running = new Map<string, Promise<T>>();

  run(key: string, work: () => Promise<T>): Promise<T> {
    const running = this.#running.get(key);
    if (running) return running;
    const started = work().finally(() => this.#running.delete(key));
    this.#running.set(key, started);
    return started;
  }
}

/** Callers during a run share the next one: no caller gets a run that began before the call. */
export function coalesce<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const start = (): Promise<T> => {
    next = undefined;
    const run = work();
    running = run;
    const ended = (): void => {
      if (!next) running = undefined;
    };
    run.then(ended, ended);
    return run;
  };
  return () => {
    if (!running) return start();
    next ??= running.then(start, start);
    return next;
  };
}

/** Callers in one turn of the event loop share a call, which is made after it. */
export function oncePerTurn<T>(work: () => Promise<T>): () => Promise<T> {
  let next: Promise<T> | undefined;
  const start = (resolve: (result: Promise<T>) => void): void => {
    next = undefined;
    resolve(work());
  };
  return () => {
    next ??= new Promise((resolve) => setImmediate(start, resolve));
    return next;
  };
}

interface QueuedItem<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

/** Batches run at once, of which all but one are late. */
const MAX_RUNNING = 4;

/** Maximum number of items of a failed batch that run at a time. */
const ALONE_AT_ONCE = 16;

/**
 * Returns a function that takes one item. Items taken together, or while a batch runs, are run together. A batch that
 * fails is run item by item, so that a bad item fails alone. Resolves after the item's run, with the result at its place.
 * The next batch does not wait for one that has run for `lateMs`.
 */
export function createBatch<Item>(
  max: number,
  run: (items: readonly Item[]) => Promise<void>,
  lateMs?: number,
): (item: Item) => Promise<void>;
export function createBatch<Item, Result>(
  max: number,
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
  lateMs?: number,
): (item: Item) => Promise<Result>;
export function createBatch<Item, Result>(
  max: number,
  run: (items: readonly Item[]) => Promise<unknown>,
  lateMs?: number,
) {
  const queue: QueuedItem<Item, Result>[] = [];
  let [running, late] = [0, 0];

  const runSome = async (items: readonly QueuedItem<Item, Result>[]): Promise<void> => {
    try {
      const results = await run(items.map(({ item }) => item));
      for (const [index, { resolve }] of items.entries())
        resolve((results as readonly Result[] | undefined)?.[index] as Result);
    } catch (error) {
      if (items.length > 1 && codeOf(error) !== "unavailable") {
        await mapLimited(items, ALONE_AT_ONCE, (item) => runSome([item]));
      } else {
        for (const { reject } of items) reject(error);
      }
    }
  };

  const runNext = async (): Promise<void> => {
    let isLate = false;
    const overtaken = (): void => {
      isLate = true;
      late += 1;
      start();
    };
    const timer = lateMs === undefined ? undefined : setTimeout(overtaken, lateMs);
    await runSome(queue.splice(0, max));
    clearTimeout(timer);
    if (isLate) late -= 1;
  };

  const drain = async (): Promise<void> => {
    running += 1;
    await new Promise<void>((resolve) => setImmediate(resolve));
    // After a late run another one may serve the queue.
    while (queue.length > 0 && running - late === 1) await runNext();
    running -= 1;
  };

  const start = (): void => {
    if (queue.length > 0 && running === late && running < MAX_RUNNING) void drain();
  };

  return (item: Item) =>
    new Promise<Result>((resolve, reject) => {
      queue.push({ item, resolve, reject });
      start();
    });
}
