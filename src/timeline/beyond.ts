import { collect, collectUpward } from "./collect.js";
import type { Beyond } from "./pages.js";
import type { ReadBounds, Sources } from "./ports.js";
import { authorsFor } from "./snapshot.js";

/**
 * Reads of a home below its floor: every author is asked, so that they wait for their turn
 * like rebuilds. `deadline` is in ms since the epoch.
 */
export function homeBeyond(
  { openSources, inTurn }: ReadBounds,
  reader: string,
  { deadline, tolerant = false }: { readonly deadline: number; readonly tolerant?: boolean },
): Beyond {
  const asking = <T>(ask: (sources: Sources, authors: readonly string[]) => Promise<T>): Promise<T> =>
    inTurn(async () => {
      const sources = tolerant ? leavingOut(openSources()) : openSources();
      return ask(sources, await authorsFor(sources, reader, deadline));
    });
  return {
    older: (below, { above, count }) =>
      asking(
        async (sources, authors) =>
          (await collect(sources, { reader, authors, below, above, count, deadline })).entries,
      ),
    newer: ({ above, count }, top) =>
      asking((sources, authors) => collectUpward(sources, { reader, authors, above, top, count, deadline })),
  };
}

/** What can be had of authors although others cannot. */
const leavingOut = (sources: Sources): Sources => ({
  ...sources,
  drops: (author, below, how) => sources.drops(author, below, how).catch(() => []),
});
