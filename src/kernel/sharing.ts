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

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Items asked for together, or while a batch runs, are run together. One bad item does not fail its batch, which is run
 * item by item then. Resolves after the item's run, with the result at its place.
 */
export function createBatch<Item>(
  max: number,
  run: (items: readonly Item[]) => Promise<void>,
): (item: Item) => Promise<void>;
export function createBatch<Item, Result>(
  max: number,
  run: (items: readonly Item[]) => Promise<readonly Result[]>,
): (item: Item) => Promise<Result>;
export function createBatch<Item, Result>(max: number, run: (items: readonly Item[]) => Promise<unknown>) {
  const queue: Waiting<Item, Result>[] = [];
  let running = false;

  const runSome = async (some: readonly Waiting<Item, Result>[]): Promise<void> => {
    try {
      const results = await run(some.map(({ item }) => item));
      for (const [index, { resolve }] of some.entries())
        resolve((results as readonly Result[] | undefined)?.[index] as Result);
    } catch (error) {
      if (some.length > 1 && codeOf(error) !== "unavailable") {
        for (const one of some) await runSome([one]);
      } else {
        for (const { reject } of some) reject(error);
      }
    }
  };

  const drain = async (): Promise<void> => {
    running = true;
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (queue.length > 0) await runSome(queue.splice(0, max));
    running = false;
  };

  return (item: Item) =>
    new Promise<Result>((resolve, reject) => {
      queue.push({ item, resolve, reject });
      if (!running) void drain();
    });
}
