import { edgePart } from "../../contracts/keys.js";
import { chunked, grouped } from "../../kernel/concurrency.js";

/** A call then takes the server about 2 ms. */
const AUTHORS_A_CALL = 200;

/** A call in a cluster is for the authors of one part, because the keys of one call must be in one slot. */
export function callsFor<T>(all: readonly T[], authorOf: (one: T) => string, isCluster: boolean): (readonly T[])[] {
  if (!isCluster) return chunked(all, AUTHORS_A_CALL);
  return [...grouped(all, (one) => edgePart(authorOf(one))).values()];
}
