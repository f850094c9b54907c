import type { Logger } from "../../kernel/logger.js";
import type { Scripts } from "../../platform/redis/scripts.js";
import { trackChanges } from "../../platform/redis/tracking.js";
import { startTombstoneCopy } from "../fences/tombstone-copy.redis.js";
import { DELETIONS_CHANNEL, TOMBSTONES_KEY } from "../keys.js";
import { observeReadCache } from "./observe.js";
import { PageCache } from "./page-cache.js";

export type ReadCache = NonNullable<ReturnType<typeof openReadCache>>;

interface ReadCacheDeps {
  readonly scripts: Scripts;
  readonly maxBytes: number;
  readonly ttlMs: number;
  readonly log: Logger;
}

/**
 * Opens the cache of pages that are read often, and in a cluster a copy of the tombstones. Undefined if the cache has
 * no room.
 */
export function openReadCache({ scripts, maxBytes, ttlMs, log }: ReadCacheDeps) {
  if (maxBytes === 0) return undefined;
  const tracking = trackChanges({ scripts, channel: DELETIONS_CHANNEL, publisher: TOMBSTONES_KEY, log });
  const pages = new PageCache({ changes: tracking, nodeOf: scripts.nodeOf, maxBytes, ttlMs });
  observeReadCache.pages({ events: pages.events, bytes: () => pages.bytes });
  const tombstones = scripts.isCluster ? startTombstoneCopy({ scripts, tracking, log }) : undefined;
  observeReadCache.tombstones(() => tombstones?.size() ?? 0);
  const close = async (): Promise<void> => {
    await tombstones?.close();
    await tracking.close();
  };
  return { pages, tombstones, close };
}
