import { LRUCache } from "lru-cache";
import { type Clock, SECOND } from "../kernel/time.js";
import type { IdPage } from "./ports.js";

/** A page, and the generation it was read under: it is good for as long as that stands. */
export interface KeptPage {
  readonly generation: string;
  readonly page: IdPage;
}

/** Pages of lists that are read again and again, kept in this process. */
export interface HotPages {
  get(key: string): KeptPage | undefined;
  /** Keeps a page that was read several times within a second; any other is only counted. */
  offer(key: string, kept: KeptPage): void;
}

/** A page is kept once it was offered this often within a second. */
const OFFERS = 3;
const PAGES_COUNTED = 10_000;
/** At most this many ids of all pages together: about 50 MB at 36 bytes an id. */
const MOST_IDS = 250_000;

/** Makes an empty store of pages. */
export function createHotPages(now: Clock = Date.now): HotPages {
  const pages = new LRUCache<string, KeptPage>({
    maxSize: MOST_IDS,
    sizeCalculation: ({ page }) => page.ids.length + 1,
  });
  const counted = new LRUCache<string, { readonly since: number; offers: number }>({ max: PAGES_COUNTED });

  const isHot = (key: string): boolean => {
    const count = counted.get(key);
    if (count === undefined || now() - count.since >= SECOND) {
      counted.set(key, { since: now(), offers: 1 });
      return false;
    }
    count.offers += 1;
    return count.offers >= OFFERS;
  };

  return {
    get: (key) => pages.get(key),
    offer: (key, kept) => {
      // One that is kept already stays so with what it holds now.
      if (pages.has(key) || isHot(key)) pages.set(key, kept);
    },
  };
}
