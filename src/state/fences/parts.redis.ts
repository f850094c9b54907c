import { encodeId } from "../../kernel/ids.js";
import type { Answer, Script, Scripts } from "../../platform/redis/scripts.js";
import { EDGES_PREFIX, edgePart, edgesKey } from "../keys.js";

/** Maximum number of authors in a call, which takes the server about 2 ms. */
const AUTHORS_A_CALL = 200;

type Argument = string | number;

export interface PartsCall {
  readonly script: Script;
  readonly before: readonly Argument[];
  readonly authors: readonly (readonly [author: string, ...more: Argument[]])[];
}

/**
 * Runs a script for authors. The script gets the prefix of the parts, the arguments `before`, and for each author the
 * part, the author and more.
 */
export function runForAuthors<T>({ run, byNode }: Scripts, call: PartsCall): Promise<Answer<T>[]> {
  const keys = call.authors.map(([author]) => edgesKey(author));
  return byNode(keys, AUTHORS_A_CALL, async (route, indexes) => {
    const args = indexes.flatMap((index) => {
      const [author, ...more] = call.authors[index] as PartsCall["authors"][number];
      return [edgePart(author), encodeId(author), ...more];
    });
    return (await run(call.script, route, [EDGES_PREFIX, ...call.before, ...args])) as T;
  });
}
