import { createCache } from "../contracts/caches.js";
import { type Byline, compareEntries, isOpen, type TimelineEntry } from "../contracts/timelines.js";
import { grouped } from "../kernel/concurrency.js";
import { startOf } from "./pages.js";
import type { OpenSources } from "./sources.grpc.js";

export type Signed = TimelineEntry & { readonly by: Byline };

/** Maximum number of pages that are read of an author. Drops that are on none of them count as for followers. */
const MAX_READS = 8;
const DROPS_A_PAGE = 200;
/** The timelines of pulled authors have no direct drops. */
const NO_READER = "";

/**
 * Returns a function that resolves to those of some drops that are for more than followers. The timeline of a pulled
 * author does not say that, so `PostService` is asked, once for each drop: the visibility of a drop never changes.
 */
export function createOpenAmong(openSources: OpenSources) {
  const known = createCache<boolean>("openDrops", { sizeOf: () => 0 });
  return async (user: string, entries: readonly Signed[], deadline: number): Promise<ReadonlySet<string>> => {
    const unknown = entries.filter(({ drop }) => !known.has(drop));
    const sources = openSources(user);
    let asks = [...grouped(unknown, ({ by }) => by.author)].map(([author, drops]) => {
      const sorted = drops.toSorted(compareEntries);
      return { author, oldest: sorted[0] as Signed, position: startOf((sorted.at(-1) as Signed).score + 1) };
    });
    for (let reads = 0; reads < MAX_READS && asks.length > 0; reads++) {
      const open: typeof asks = [];
      await sources.drops(asks, { reader: NO_READER, count: DROPS_A_PAGE, deadline }, (ask, { drops, next }) => {
        for (const drop of drops) known.set(drop.drop_id, isOpen(drop));
        if (next && compareEntries(next, ask.oldest) > 0) open.push({ ...ask, position: next });
      });
      asks = open;
    }
    return new Set(entries.flatMap(({ drop }) => (known.get(drop) ? drop : [])));
  };
}
