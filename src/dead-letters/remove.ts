import { oneLine } from "../kernel/errors.js";
import type { Letters } from "./dead-letter.js";
import type { Verdicts } from "./redrive.js";

/** What became of letters that were to be removed. */
export interface Removal {
  readonly removed: number[];
  readonly failed: Verdicts;
}

/** Deletes letters for good, oldest first. A dry run says which, and changes nothing. */
export async function remove(
  letters: Pick<Letters, "remove">,
  seqs: readonly number[],
  options: { readonly dryRun?: boolean | undefined; readonly watch?: ((removal: Removal) => void) | undefined } = {},
): Promise<Removal> {
  const removal: Removal = { removed: [], failed: [] };
  options.watch?.(removal);
  for (const seq of seqs) {
    try {
      if (!options.dryRun) await letters.remove(seq);
      removal.removed.push(seq);
    } catch (error) {
      removal.failed.push({ seq, why: oneLine(error) });
    }
    options.watch?.(removal);
  }
  return removal;
}
