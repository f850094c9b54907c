import { LRUCache } from "lru-cache";
import { createCache, textBytes } from "../../contracts/caches.js";
import { bylineBytes } from "../../contracts/timelines.js";
import { MINUTE } from "../../kernel/time.js";
import type { Stored } from "./stored.js";

/** Changes of keys, as the server announces them (see platform/redis/tracking.ts). */
interface Changes {
  isOn(nodes: readonly string[]): boolean;
  follow(keys: readonly string[]): Promise<boolean>;
  upToDate(nodes: readonly string[]): Promise<boolean>;
}

export type CacheEvent = "hit" | "miss" | "changed" | "deleted" | "evicted" | "expired";

interface PageCacheOptions {
  readonly changes: Changes;
  /** Returns the name of the server that holds a key. */
  readonly nodeOf: (key: string) => string;
  readonly maxBytes: number;
  /** Time to live of homes, ms. Reads from Redis renew it; cached answers do not. */
  readonly ttlMs: number;
}

/** A key from which answers were read. */
export interface FollowedKey {
  readonly key: string;
  /** Server that the key was read from, which announces its changes. */
  readonly node: string;
  /** Number of reads of the key that are under way. */
  reads: number;
  /** Names of the cached answers that were read from the key. */
  readonly names: Set<string>;
}

/** The keys of an answer, and the number of deletions known before it was read. */
export interface Origin {
  readonly keys: readonly FollowedKey[];
  readonly deletions: number;
}

interface CachedAnswer extends Pick<Origin, "keys"> {
  readonly stored: Stored;
  readonly nodes: readonly string[];
  deletions: number;
  readonly size: number;
  /** False once one of its keys has changed, or another answer has replaced this one. */
  isCached: boolean;
}

/** Number of latest deletions that an answer is compared with. After more deletions it is read anew. */
const DELETIONS = 256;
const MAX_AGE_MS = MINUTE;
/** Maximum age of a cached answer, as a share of the time to live: a renewal is late by at most this share. */
const SHARE_OF_TTL = 0.01;

/** Memory of an answer, of each of its keys and of each unencoded drop, beside their texts, bytes. */
const BYTES = { answer: 500, key: 400, drop: 200 };

/**
 * Caches answers of Redis until a key that they were read from changes. An answer is returned only after the server has
 * confirmed, since the read began, that nothing has changed: Redis would give the same answer.
 *
 * Each deletion changes the tombstones, whose key is not followed: deleted drops are announced by name, and an answer
 * that shows one is discarded.
 */
export class PageCache {
  /** Counts since the start. */
  readonly events: Record<CacheEvent, number> = { hit: 0, miss: 0, changed: 0, deleted: 0, evicted: 0, expired: 0 };
  readonly #options: PageCacheOptions;
  readonly #followed = new Map<string, FollowedKey>();
  /** Names of pages read lately. A page whose name is here is cached when it is read again. */
  readonly #seen = createCache<true>("seenPages", { sizeOf: () => 0 });
  readonly #answers: LRUCache<string, CachedAnswer>;
  readonly #deleted: string[] = [];
  #deletions = 0;

  constructor(options: PageCacheOptions) {
    this.#options = options;
    this.#answers = new LRUCache<string, CachedAnswer>({
      maxSize: options.maxBytes,
      sizeCalculation: ({ size }) => size,
      ttl: Math.max(1, Math.min(MAX_AGE_MS, options.ttlMs * SHARE_OF_TTL)),
      dispose: (answer, name, reason) => {
        answer.isCached = false;
        for (const key of answer.keys) {
          key.names.delete(name);
          this.#forget(key);
        }
        if (reason === "evict") this.events.evicted++;
        if (reason === "expire") this.events.expired++;
      },
    });
  }

  get bytes(): number {
    return this.#answers.calculatedSize;
  }

  /** Returns true while answers read from this key can be cached: always false if the cache has no room. */
  isOn(key: string): boolean {
    const { maxBytes, changes, nodeOf } = this.#options;
    return maxBytes > BYTES.answer && changes.isOn([nodeOf(key)]);
  }

  /** Returns true if the page was asked for lately. Notes that it is asked for. */
  isWanted(name: string): boolean {
    if (this.#seen.get(name)) return true;
    this.#seen.set(name, true);
    return false;
  }

  /** Returns the cached answer, which may be outdated. */
  peek(name: string): Stored | undefined {
    return this.#answers.peek(name)?.stored;
  }

  /** Resolves to the answer that Redis would give now, if it is cached. */
  async read(name: string): Promise<CachedAnswer | undefined> {
    const cached = this.#answers.get(name);
    const isValid = cached !== undefined && (await this.#options.changes.upToDate(cached.nodes)) && cached.isCached;
    const current = isValid ? this.#unlessDeleted(name, cached) : undefined;
    this.events[current ? "hit" : "miss"]++;
    return current;
  }

  get(name: string): CachedAnswer | undefined {
    const answer = this.#answers.get(name);
    return answer && this.#unlessDeleted(name, answer);
  }

  #unlessDeleted(name: string, answer: CachedAnswer): CachedAnswer | undefined {
    if (this.#isAlive(answer)) return answer;
    this.#discard(name, "deleted");
    return undefined;
  }

  /** Follows the keys of a read that is sent after the call. The caller calls `end` after the read. */
  begin(keys: readonly string[]): Origin {
    const followed = keys.map((key) => this.#followedKey(key));
    for (const key of followed) key.reads++;
    return { keys: followed, deletions: this.#deletions };
  }

  /** Asks the server to announce changes of the keys of reads, which are sent next. Resolves to true if it does. */
  follow(origins: readonly Origin[]): Promise<boolean> {
    return this.#options.changes.follow([...new Set(origins.flatMap(({ keys }) => keys.map(({ key }) => key)))]);
  }

  /** Caches a result, unless it is incomplete, hides drops, or a key has changed or is not followed any more. */
  keep(name: string, stored: Stored, { keys, deletions }: Origin): void {
    this.#answers.delete(name);
    const hides = !stored.areAlive && stored.entries.length > 0;
    if (hides || stored.floor === undefined || !keys.every((key) => this.#isFollowed(key))) return;
    const page = stored.page && ownCopy(stored.page);
    const nodes = [...new Set(keys.map(({ node }) => node))];
    let size = BYTES.answer + textBytes(name) + (page?.length ?? 0) + BYTES.drop * (stored.relations?.size ?? 0);
    for (const { key } of keys) size += BYTES.key + textBytes(key);
    for (const { drop, by } of stored.entries) size += BYTES.drop + textBytes(drop) + (by ? bylineBytes(by) : 0);
    if (size > this.#options.maxBytes) return;
    // The names are added first: the answers that are evicted for this one may be the last others of a key.
    for (const key of keys) key.names.add(name);
    const kept = page ? { ...stored, page } : stored;
    this.#answers.set(name, { stored: kept, keys, nodes, deletions, size, isCached: true });
  }

  end({ keys }: Origin): void {
    for (const key of keys) {
      key.reads--;
      this.#forget(key);
    }
  }

  changed(key: string): void {
    const followed = this.#followed.get(key);
    if (!followed) return;
    this.#followed.delete(key);
    for (const name of [...followed.names]) this.#discard(name, "changed");
  }

  deleted(drop: string): void {
    this.#deletions++;
    this.#deleted.push(drop);
    if (this.#deleted.length > DELETIONS) this.#deleted.shift();
  }

  /** Removes everything, since any key may have changed. */
  clear(): void {
    this.#followed.clear();
    this.#answers.clear();
  }

  #followedKey(key: string): FollowedKey {
    const node = this.#options.nodeOf(key);
    // The slot of the key has moved: another node announces its changes.
    if (this.#followed.get(key)?.node !== node) this.changed(key);
    const followed = this.#followed.get(key) ?? { key, node, reads: 0, names: new Set<string>() };
    this.#followed.set(key, followed);
    return followed;
  }

  #forget(followed: FollowedKey): void {
    const isUsed = followed.reads > 0 || followed.names.size > 0;
    if (!isUsed && this.#isFollowed(followed)) this.#followed.delete(followed.key);
  }

  #isFollowed(followed: FollowedKey): boolean {
    return this.#followed.get(followed.key) === followed;
  }

  #discard(name: string, why: CacheEvent): void {
    if (this.#answers.delete(name)) this.events[why]++;
  }

  /** Returns true if no drop of the answer is known to have been deleted since it was read. */
  #isAlive(answer: CachedAnswer): boolean {
    const unknown = this.#deletions - answer.deletions;
    answer.deletions = this.#deletions;
    if (unknown === 0) return true;
    return unknown <= DELETIONS && !this.#deleted.slice(-unknown).some((drop) => shows(answer.stored, drop));
  }
}

const shows = ({ page, entries }: Stored, drop: string): boolean =>
  page ? page.includes(drop) : entries.some((entry) => entry.drop === drop);

/** Copies a small buffer, which is a part of a larger one that it would keep in memory. */
function ownCopy(part: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(part.length);
  part.copy(copy);
  return copy;
}
