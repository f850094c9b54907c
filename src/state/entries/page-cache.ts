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

/** Answers were read from this key. */
export interface FollowedKey {
  readonly key: string;
  /** The server that it was read from announces its changes. */
  readonly node: string;
  /** So many reads of it are under way. */
  reads: number;
  /** The names are those of the cached answers. */
  readonly names: Set<string>;
}

/** The keys of an answer, and how many deletions were known before it was read. */
export interface Origin {
  readonly keys: readonly FollowedKey[];
  readonly deletions: number;
}

interface CachedAnswer extends Pick<Origin, "keys"> {
  readonly stored: Stored;
  readonly nodes: readonly string[];
  deletions: number;
  readonly size: number;
  /** False once a key of it has changed, or another answer has taken its place. */
  isCached: boolean;
}

/** Deletions that an answer is compared with. After more than these it is read anew. */
const DELETIONS = 256;
const MAX_AGE_MS = MINUTE;
/** An answer is cached for at most this share of the time to live, so that a renewal is late by no more. */
const SHARE_OF_TTL = 0.01;

/** Memory of an answer, of each of its keys and of each drop that is not encoded, beside their texts, bytes. */
const BYTES = { answer: 500, key: 400, drop: 200 };

/**
 * Caches answers of Redis until a key that they were read from changes. An answer is returned only once the server has
 * confirmed, after the read began, that nothing has changed: it is what Redis would answer.
 *
 * Each deletion changes the tombstones. They are not followed: deleted drops are announced by name, and an answer that
 * shows one is discarded.
 */
export class PageCache {
  /** These count since the start. */
  readonly events: Record<CacheEvent, number> = { hit: 0, miss: 0, changed: 0, deleted: 0, evicted: 0, expired: 0 };
  readonly #options: PageCacheOptions;
  readonly #followed = new Map<string, FollowedKey>();
  /** A page is cached if it is read again while its name is in here. */
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
      dispose: (one, name, reason) => {
        one.isCached = false;
        for (const key of one.keys) {
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

  /** Returns true while answers read from this key can be cached: never where there is room for none. */
  isOn(key: string): boolean {
    const { maxBytes, changes, nodeOf } = this.#options;
    return maxBytes > BYTES.answer && changes.isOn([nodeOf(key)]);
  }

  /** The page was asked for before, and not long ago. */
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
    const held = this.#answers.get(name);
    const isValid = held !== undefined && (await this.#options.changes.upToDate(held.nodes)) && held.isCached;
    const found = isValid ? this.#unlessDeleted(name, held) : undefined;
    this.events[found ? "hit" : "miss"]++;
    return found;
  }

  get(name: string): CachedAnswer | undefined {
    const one = this.#answers.get(name);
    return one && this.#unlessDeleted(name, one);
  }

  #unlessDeleted(name: string, one: CachedAnswer): CachedAnswer | undefined {
    if (this.#isAlive(one)) return one;
    this.#discard(name, "deleted");
    return undefined;
  }

  /** Follows the keys of a read that is sent after the call, and that must be ended. */
  begin(keys: readonly string[]): Origin {
    const followed = keys.map((key) => this.#followedKey(key));
    for (const key of followed) key.reads++;
    return { keys: followed, deletions: this.#deletions };
  }

  /** Sends the keys of reads, which are sent next; resolves to true where they are followed. */
  follow(origins: readonly Origin[]): Promise<boolean> {
    return this.#options.changes.follow([...new Set(origins.flatMap(({ keys }) => keys.map(({ key }) => key)))]);
  }

  /** Holds what was read, unless it is incomplete, hides something, or a key has changed or ceased to be followed. */
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
    // The names are added first: the answers that make room for this one may be the last others of a key.
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

  /** This forgets everything, since any key may have changed. */
  clear(): void {
    this.#followed.clear();
    this.#answers.clear();
  }

  #followedKey(key: string): FollowedKey {
    const node = this.#options.nodeOf(key);
    // Its slot has moved: another node announces its changes.
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

  /** No drop of the answer is known to be deleted since it was read. */
  #isAlive(one: CachedAnswer): boolean {
    const unknown = this.#deletions - one.deletions;
    one.deletions = this.#deletions;
    if (unknown === 0) return true;
    return unknown <= DELETIONS && !this.#deleted.slice(-unknown).some((drop) => shows(one.stored, drop));
  }
}

const shows = ({ page, entries }: Stored, drop: string): boolean =>
  page ? page.includes(drop) : entries.some((entry) => entry.drop === drop);

/** A small buffer is a part of a larger one, which it would keep alive. */
function ownCopy(part: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(part.length);
  part.copy(copy);
  return copy;
}
