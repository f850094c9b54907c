import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { DELETIONS_CHANNEL } from "../../src/contracts/keys.js";
import { silent } from "../../src/kernel/logger.js";
import type { Scripts } from "../../src/platform/redis/scripts.js";
import { trackChanges } from "../../src/platform/redis/tracking.js";
import { PageCache } from "../../src/timeline/page-cache.js";
import { eventually } from "./eventually.js";

/** What a process holds of one Redis. */
export interface CacheBench {
  readonly cache: PageCache;
  close(): Promise<void>;
}

export async function openCache(
  { scripts, url }: { readonly scripts: Scripts; readonly url: string },
  maxBytes = 1_000_000,
): Promise<CacheBench> {
  const tracking = trackChanges({ scripts, urls: [url], channel: DELETIONS_CHANNEL, log: silent });
  const cache = new PageCache({
    changes: tracking,
    maxBytes,
    ttlMs: Number(STORED_TIMELINES_VARIABLES.ttlMs.default),
  });
  tracking.announcements.on("changed", (key) => cache.changed(key));
  tracking.announcements.on("published", (drop) => cache.deleted(drop));
  tracking.announcements.on("lost", () => cache.clear());
  await eventually(() => tracking.isOn(), "changes are followed");
  return { cache, close: () => tracking.close() };
}
