import type { Redis } from "ioredis";
import { STORED_TIMELINES_VARIABLES } from "../../src/contracts/config.js";
import { silent } from "../../src/kernel/logger.js";
import { connected, connectRedis } from "../../src/platform/redis/connect.js";
import { createScripts, type Scripts } from "../../src/platform/redis/scripts.js";
import { type Tracking, trackChanges } from "../../src/platform/redis/tracking.js";
import { PageCache } from "../../src/state/entries/page-cache.js";
import { DELETIONS_CHANNEL, TOMBSTONES_KEY } from "../../src/state/keys.js";
import { eventually } from "./eventually.js";

/** The answers of one Redis that a process holds. */
export interface CacheBench {
  readonly cache: PageCache;
  /** Breaks the cache: it hears of no deletion any more. */
  readonly ignoreDeletions: () => void;
  close(): Promise<void>;
}

interface Servers {
  readonly scripts: Scripts;
  readonly url: string;
}

/** The connections of a process that reads; `listenTo`: the address that its announcements come over. */
export async function openReader(redisUrl: string, listenTo = redisUrl, options: CacheOptions = {}) {
  const client = connectRedis([redisUrl], silent);
  await connected(client);
  const scripts = createScripts(client);
  const held = await openCache({ scripts, url: listenTo }, options);
  const close = async (): Promise<void> => {
    await held.close();
    client.disconnect();
  };
  return { client, scripts, held, close };
}

export interface CacheOptions {
  readonly maxBytes?: number;
  /** In place of the tracking's own. */
  readonly upToDate?: Tracking["upToDate"];
}

export async function openCache(
  { scripts, url }: Servers,
  { maxBytes = 1_000_000, upToDate }: CacheOptions = {},
): Promise<CacheBench> {
  const listen = () => connectRedis([url], silent, { protocol: 2, autoResubscribe: false }) as Redis;
  const of = { channel: DELETIONS_CHANNEL, publisher: TOMBSTONES_KEY, log: silent };
  const tracking = trackChanges({ scripts, ...of, listen });
  const cache = new PageCache({
    changes: upToDate ? { ...tracking, upToDate } : tracking,
    nodeOf: scripts.nodeOf,
    maxBytes,
    ttlMs: Number(STORED_TIMELINES_VARIABLES.ttlMs.default),
  });
  await eventually(() => tracking.isOn([""]), "changes are followed");
  return {
    cache,
    ignoreDeletions: () => void tracking.announcements.removeAllListeners("published"),
    close: tracking.close,
  };
}
