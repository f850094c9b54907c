import type { Logger } from "../../kernel/logger.js";

/** The line of remove-wrong-types.lua that a script takes the place of. */
const COMMAND = "return redis.call(unpack(ARGV))";
/** A pipeline may meet more than one. */
const MOST_KEYS = 10;
const NAMED_KEYS = 10;

export type WithRemoved = readonly [removed: readonly unknown[], result: unknown];

/** The script as it runs once it has met a key of a wrong type. A function as replacement: `$` has no meaning in it. */
export const removingWrongTypes = (remover: string, script: string): string => remover.replace(COMMAND, () => script);

export const isWrongType = (error: unknown): boolean => /\bWRONGTYPE\b/.test((error as Error).message);

/**
 * `remove` runs remove-wrong-types.lua. All that Redis holds can be built again, so a key of a wrong type is removed, and
 * what is missing follows as after a loss.
 */
export function createWrongTypes(remove: (args: readonly unknown[]) => Promise<unknown>, log: Logger) {
  const resultOf = ([removed, result]: WithRemoved): unknown => {
    const keys = removed.slice(0, NAMED_KEYS).map(String);
    if (removed.length > 0)
      log.warn(
        { keys, count: removed.length },
        "keys of a wrong type were removed from Redis; their contents are built again",
      );
    return result ?? null;
  };
  return {
    /** Takes the result of a script that removes the keys itself. */
    resultOf,
    /** Calls again until no key is of a wrong type. */
    async callAgain<T>(call: () => Promise<T>, error: unknown): Promise<T> {
      let last = error;
      for (let met = 0; met < MOST_KEYS && isWrongType(last); met++) {
        const { command } = causeOf(last);
        if (!command) break;
        resultOf((await remove([1, command.args[0], command.name, ...command.args])) as WithRemoved);
        try {
          return await call();
        } catch (next) {
          last = next;
        }
      }
      throw last;
    },
  };
}

/** The client adds the command to the error; the reply of a pipeline is wrapped. */
const causeOf = (error: unknown): { readonly command?: { readonly name: string; readonly args: readonly unknown[] } } =>
  (error as Error).cause ?? (error as object);
