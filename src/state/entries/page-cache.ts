import type { EventEmitter } from "node:events";
import { LRUCache } from "lru-cache";
import { createCache, textBytes } from "../../contracts/caches.js";
import { bylineBytes } from "../../contracts/timelines.js";
import { MINUTE } from "../../kernel/time.js";
import type { Stored } from "./stored.js";

/** Changes of keys, as the server announces them (see platform/redis/tracking.ts). */
interface Changes {
  readonly announcements: EventEmitter<{ changed: [key: string]; published: [drop: string]; lost: [boolean] }>;
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
interface FollowedKey {
  readonly key: string;
  /** Server that the key was read from, which announces its changes. */
  readonly node: string;
  /** Number of reads of the key that are under way. */
  reads: number;
  /** Names of the cached answers that were read from the key. */
  readonly names: Set<string>;
}

export interface Answer {
  readonly stored: Stored;
  /** Keys that it was read from, and are followed. Undefined: one of them is not, and the answer must not be cached. */
  readonly keys: readonly FollowedKey[] | undefined;
}

/** The keys of an answer, and the number of deletions known before it was read. */
interface Origin {
  readonly keys: readonly FollowedKey[];
  readonly deletions: number;
}

interface CachedAnswer extends Answer {
  readonly keys: readonly FollowedKey[];
  readonly nodes: readonly string[];
  deletions: number;
  readonly size: number;
  /** False once one of its keys has changed, or another answer has replaced this one. */
  isCached: boolean;
}

/** Number of latest deletions that an answer is compared with. After more deletions it is read anew. */
const DELETIONS = 256;
/** Maximum age of a cached answer. read-page.lua has it, too. */
export const MAX_AGE_MS = MINUTE;
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
    const { announcements } = options.changes;
    announcements.on("changed", (key) => this.#changed(key));
    announcements.on("published", (drop) => {
      this.#deletions++;
      this.#deleted.push(drop);
      if (this.#deleted.length > DELETIONS) this.#deleted.shift();
    });
    announcements.on("lost", () => {
      this.#followed.clear();
      this.#answers.clear();
    });
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
  #isWanted(name: string): boolean {
    if (this.#seen.get(name)) return true;
    this.#seen.set(name, true);
    return false;
  }

  /** Returns the cached answer, which may be outdated. */
  peek(name: string): Stored | undefined {
    return this.#answers.peek(name)?.stored;
  }

  /** Resolves to the answer that Redis would give now, if it is cached. */
  async read(name: string): Promise<Answer | undefined> {
    const cached = this.#answers.get(name);
    const isValid = cached !== undefined && (await this.#options.changes.upToDate(cached.nodes)) && cached.isCached;
    const current = isValid ? this.#unlessDeleted(name, cached) : undefined;
    this.events[current ? "hit" : "miss"]++;
    return current;
  }

  /**
   * Reads an answer with `load`, and caches it if its page was asked for lately. `load` gets the keys to follow, and
   * returns the keys of other answers that it was made of.
   */
  async fill(
    name: string,
    keys: readonly string[],
    load: (follows: readonly string[]) => Promise<Answer>,
  ): Promise<Answer> {
    const isCachable = keys[0] !== undefined && this.isOn(keys[0]) && this.#isWanted(name);
    const follows = isCachable ? keys : [];
    const followed = follows.map((key) => this.#followedKey(key));
    for (const key of followed) key.reads++;
    const deletions = this.#deletions;
    try {
      const answer = await load(follows);
      if (!isCachable || !answer.keys) return { ...answer, keys: undefined };
      return this.#keep(name, answer.stored, { keys: [...followed, ...answer.keys], deletions });
    } finally {
      for (const key of followed) {
        key.reads--;
        this.#forget(key);
      }
    }
  }

  /** Asks the server to announce changes of the keys of reads, which are sent next. Resolves to true if it does. */
  follow(keys: readonly string[]): Promise<boolean> {
    return this.#options.changes.follow([...new Set(keys)]);
  }

  #unlessDeleted(name: string, answer: CachedAnswer): CachedAnswer | undefined {
    if (this.#isAlive(answer)) return answer;
    this.#discard(name, "deleted");
    return undefined;
  }

  /** Caches a result, unless it is incomplete, hides drops, or a key has changed or is not followed any more. */
  #keep(name: string, stored: Stored, { keys, deletions }: Origin): Answer {
    this.#answers.delete(name);
    const hides = !stored.areAlive && stored.entries.length > 0;
    if (hides || stored.floor === undefined || !keys.every((key) => this.#isFollowed(key)))
      return { stored, keys: undefined };
    const page = stored.page && ownCopy(stored.page);
    const nodes = [...new Set(keys.map(({ node }) => node))];
    let size = BYTES.answer + textBytes(name) + (page?.length ?? 0) + BYTES.drop * (stored.relations?.size ?? 0);
    for (const { key } of keys) size += BYTES.key + textBytes(key);
    for (const { drop, by } of stored.entries) size += BYTES.drop + textBytes(drop) + (by ? bylineBytes(by) : 0);
    if (size > this.#options.maxBytes) return { stored, keys: undefined };
    // The names are added first: the answers that are evicted for this one may be the last others of a key.
    for (const key of keys) key.names.add(name);
    const kept = page ? { ...stored, page } : stored;
    const answer = { stored: kept, keys, nodes, deletions, size, isCached: true };
    this.#answers.set(name, answer);
    return answer;
  }

  #changed(key: string): void {
    const followed = this.#followed.get(key);
    if (!followed) return;
    this.#followed.delete(key);
    for (const name of [...followed.names]) this.#discard(name, "changed");
  }

  #followedKey(key: string): FollowedKey {
    const node = this.#options.nodeOf(key);
    // The slot of the key has moved: another node announces its changes.
    if (this.#followed.get(key)?.node !== node) this.#changed(key);
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
  page?.includes(drop) === true || entries.some((entry) => entry.drop === drop);

/** Copies a small buffer, which is a part of a larger one that it would keep in memory. */
function ownCopy(part: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(part.length);
  part.copy(copy);
  return copy;
}
