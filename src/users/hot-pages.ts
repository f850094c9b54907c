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
  const offers = new LRUCache<string, number>({ max: PAGES_COUNTED, ttl: SECOND, noUpdateTTL: true, perf: { now } });
  const isHot = (key: string): boolean => {
    const count = (offers.get(key) ?? 0) + 1;
    offers.set(key, count);
    return count >= OFFERS;
  };
  return {
    get: (key: string): KeptPage | undefined => pages.get(key),
    offer: (key: string, kept: KeptPage): void => {
      if (pages.has(key) || isHot(key)) pages.set(key, kept);
    },
  };
}
