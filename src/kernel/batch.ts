import { codeOf } from "./errors.js";

interface Waiting<Item> {
  readonly item: Item;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Makes one run of what is asked for one by one: what arrives while a run is under way goes into the next, at most
 * `max` items. Where a run of several fails for a reason of its own they are run singly, so that one bad item does not
 * fail its neighbours; where a server is away, all of them fail with it.
 *
 * @returns what resolves once the item's run has succeeded
 */
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
    // One turn of the loop, so that what comes in the same moment goes together.
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
