import { LRUCache } from "lru-cache";
import { type Clock, SECOND } from "../kernel/time.js";

export interface IdPage {
  readonly ids: readonly string[];
  readonly total: number;
}

interface KeptPage {
  readonly generation: string;
  readonly page: IdPage;
}

/** A page is kept once it was offered this often within a second. */
const OFFERS = 3;
const PAGES_COUNTED = 10_000;
/** Of all pages: about 50 MB at 36 bytes an id. */
const MAX_IDS = 250_000;

export type HotPages = ReturnType<typeof createHotPages>;

/** Keeps pages that are read very often in this process. */
export function createHotPages(now: Clock = Date.now) {
  const pages = new LRUCache<string, KeptPage>({
    maxSize: MAX_IDS,
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
    get: (key: string): KeptPage | undefined => pages.get(key),
    offer: (key: string, kept: KeptPage): void => {
      if (pages.has(key) || isHot(key)) pages.set(key, kept);
    },
  };
}
