import { EDGES_PREFIX, edgePart, edgesKey } from "../../contracts/keys.js";
import { chunked, grouped } from "../../kernel/concurrency.js";
import { encodeId } from "../../kernel/ids.js";
import type { Script, Scripts } from "../../platform/redis/scripts.js";

/** A call then takes the server about 2 ms. */
const AUTHORS_A_CALL = 200;

/** A call in a cluster is for the authors of one part, because the keys of one call must be in one slot. */
export function callsFor<T>({ isCluster }: Scripts, all: readonly T[], authorOf: (one: T) => string): (readonly T[])[] {
  if (!isCluster) return chunked(all, AUTHORS_A_CALL);
  return [...grouped(all, (one) => edgePart(authorOf(one))).values()];
}

type Argument = string | number;

/** The script gets the prefix of the parts, the arguments `before`, and of each author the part, the author and more. */
export function runFor(
  { isCluster, run }: Scripts,
  lua: Script,
  before: readonly Argument[],
  authors: readonly (readonly [author: string, ...more: Argument[]])[],
): Promise<unknown> {
  const keys = isCluster ? authors.slice(0, 1).map(([author]) => edgesKey(author)) : [];
  const args = authors.flatMap(([author, ...more]) => [edgePart(author), encodeId(author), ...more]);
  return run(lua, keys, [EDGES_PREFIX, ...before, ...args]);
}
