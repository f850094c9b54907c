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

/** Callers never share a run that began before they called: callers during a run share the next. */
export function coalesce<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let next: Promise<T> | undefined;
  const start = (): Promise<T> => {
    running = work().finally(() => {
      running = undefined;
    });
    return running;
  };
  return () => {
    if (!running) return start();
    next ??= running
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return start();
      });
    return next;
  };
}

interface Waiting<Item> {
  readonly item: Item;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** One bad item does not fail its batch, which is run item by item then. Resolves after the item's run. */
export function createBatch<Item>(
  max: number,
  run: (items: readonly Item[]) => Promise<void>,
): (item: Item) => Promise<void> {
  const queue: Waiting<Item>[] = [];
  let running = false;

  const runSome = async (some: readonly Waiting<Item>[]): Promise<void> => {
    try {
      await run(some.map(({ item }) => item));
      for (const { resolve } of some) resolve();
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

  return (item) =>
    new Promise<void>((resolve, reject) => {
      queue.push({ item, resolve, reject });
      if (!running) void drain();
    });
}
