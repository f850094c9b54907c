import { chunked } from "../../kernel/concurrency.js";
import { coalesce } from "../../kernel/sharing.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { FLOOR_MEMBER, TOMBSTONES_KEY } from "../keys.js";

type Drops = readonly string[];

/** Maximum number of drops in a call, which takes the server up to 1 ms. */
const DROPS_A_CALL = 2_000;

/**
 * Returns a function that resolves, for each list of drops, to true if none of them has a tombstone, and to false if
 * the tombstones are not known. Lists that come while a call is under way share the next one.
 */
export function createTombstoneCheck({ command }: Scripts): (lists: readonly Drops[]) => Promise<boolean[]> {
  let waiting: Drops[] = [];
  /** Resolves to null for each drop without a tombstone; to undefined if the tombstones are not known. */
  const ask = async (drops: string[]): Promise<(string | null)[] | undefined> => {
    const scores = await command("zmscore", (client) => client.zmscore(TOMBSTONES_KEY, ...drops, FLOOR_MEMBER));
    const floor = scores.pop();
    return floor != null && Number(floor) >= 0 ? scores : undefined;
  };
  const askAll = coalesce(async (): Promise<boolean[]> => {
    const lists = waiting;
    waiting = [];
    const drops = lists.flat();
    const parts = drops.length <= DROPS_A_CALL ? [drops] : chunked(drops, DROPS_A_CALL);
    const answers = await Promise.all(parts.map(ask));
    if (answers.includes(undefined)) return lists.map(() => false);
    const scores = answers.flat();
    let from = 0;
    return lists.map(({ length }) => {
      const to = from + length;
      while (from < to && scores[from] == null) from++;
      const areAlive = from === to && length > 0;
      from = to;
      return areAlive;
    });
  });
  return async (lists) => {
    const first = waiting.push(...lists) - lists.length;
    return (await askAll()).slice(first, first + lists.length);
  };
}
