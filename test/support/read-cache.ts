import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { DELETIONS_CHANNEL } from "../../src/contracts/keys.js";
import { silent } from "../../src/kernel/logger.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { trackChanges } from "../../src/platform/redis/tracking.js";
import { type CacheEvent, PageCache } from "../../src/timeline/page-cache.js";
import { eventually } from "./eventually.js";

/** What a process holds of one Redis, and how often what happened to it. */
export interface CacheBench {
  readonly cache: PageCache;
  readonly events: Record<CacheEvent, number>;
  close(): Promise<void>;
}

export async function openCache(
  { scripts, url }: { readonly scripts: Scripts; readonly url: string },
  maxBytes = 1_000_000,
): Promise<CacheBench> {
  const tracking = trackChanges({ scripts, urls: [url], channel: DELETIONS_CHANNEL, log: silent });
  const events = { hit: 0, miss: 0, changed: 0, deleted: 0, evicted: 0, expired: 0 };
  const cache = new PageCache({
    changes: tracking,
    maxBytes,
    ttlMs: Number(STORED_TIMELINES_VARIABLES.ttlMs.default),
    observe: (event) => events[event]++,
  });
  tracking.announcements.on("changed", (key) => cache.changed(key));
  tracking.announcements.on("published", (drop) => cache.deleted(drop));
  tracking.announcements.on("lost", () => cache.clear());
  await eventually(() => tracking.isOn(), "changes are followed");
  return { cache, events, close: () => tracking.close() };
}
