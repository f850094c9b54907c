import { LRUCache } from "lru-cache";
import { MINUTE } from "../kernel/time.js";
import type { Stored } from "./stored.js";

/** Changes of keys, as the server announces them (see platform/redis/tracking.ts). */
interface Changes {
  isOn(): boolean;
  follow(keys: readonly string[]): Promise<boolean>;
  upToDate(): Promise<boolean>;
}

export type CacheEvent = "hit" | "miss" | "changed" | "deleted" | "evicted" | "expired";

interface PageCacheOptions {
  readonly changes: Changes;
  readonly maxBytes: number;
  /** Time to live of homes, ms. Reads from Redis renew it; cached answers do not. */
  readonly ttlMs: number;
}

/** A key that answers were read from. */
export interface FollowedKey {
  readonly key: string;
  /** Reads under way. */
  reads: number;
  /** The names are those of the cached answers. */
  readonly names: Set<string>;
}

/** The keys of an answer, and how many deletions were known before it was read. */
export interface Origin {
  readonly tokens: readonly FollowedKey[];
  readonly deletions: number;
}

interface Answer {
  readonly stored: Stored;
  readonly tokens: readonly FollowedKey[];
  deletions: number;
  readonly size: number;
}

/** A page is cached if it is read again before so many others have been read once. */
const SEEN = 32_768;
/** Deletions that an answer is compared with. After more than these it is read anew. */
const DELETIONS = 256;
const MAX_AGE_MS = MINUTE;
/** An answer is cached for at most this share of the time to live, so that a renewal is late by no more. */
const SHARE_OF_TTL = 0.01;

/** An answer, each of its keys, and each drop of one that is not encoded take about so much memory. */
const BYTES = { answer: 500, key: 200, drop: 150 };

/**
 * Caches answers of Redis until a key that they were read from changes. An answer is returned only once the server has
 * confirmed, after the read began, that nothing has changed: it is what Redis would answer.
 *
 * Each deletion changes the tombstones. They are not followed: deleted drops are announced by name, and an answer that
 * shows one is discarded.
 */
export class PageCache {
  /** Counts since the start. */
  readonly events: Record<CacheEvent, number> = { hit: 0, miss: 0, changed: 0, deleted: 0, evicted: 0, expired: 0 };
  readonly #options: PageCacheOptions;
  readonly #tokens = new Map<string, FollowedKey>();
  readonly #seen = new LRUCache<string, true>({ max: SEEN });
  readonly #answers: LRUCache<string, Answer>;
  readonly #deleted: string[] = [];
  #deletions = 0;

  constructor(options: PageCacheOptions) {
    this.#options = options;
    this.#answers = new LRUCache<string, Answer>({
      maxSize: options.maxBytes,
      sizeCalculation: ({ size }) => size,
      ttl: Math.max(1, Math.min(MAX_AGE_MS, options.ttlMs * SHARE_OF_TTL)),
      dispose: (one, name, reason) => {
        for (const token of one.tokens) {
          token.names.delete(name);
          this.#forget(token);
        }
        if (reason === "evict") this.events.evicted++;
        if (reason === "expire") this.events.expired++;
      },
    });
  }

  get bytes(): number {
    return this.#answers.calculatedSize;
  }

  isOn(): boolean {
    return this.#options.changes.isOn();
  }

  /** The page was asked for before, and not long ago. */
  isWanted(name: string): boolean {
    if (this.#seen.get(name)) return true;
    this.#seen.set(name, true);
    return false;
  }

  /** The answer that Redis would give now, if it is cached. */
  async read(name: string): Promise<Stored | undefined> {
    const found = this.#answers.has(name) && (await this.upToDate()) ? this.get(name) : undefined;
    this.events[found ? "hit" : "miss"]++;
    return found?.stored;
  }

  /** Resolves to true once {@link get} gives nothing that was outdated when this was called. */
  upToDate(): Promise<boolean> {
    return this.#options.changes.upToDate();
  }

  get(name: string): Answer | undefined {
    const one = this.#answers.get(name);
    if (!one || this.#isAlive(one)) return one;
    this.#discard(name, "deleted");
    return undefined;
  }

  /** Follows the keys of a read that is sent after the call, and that must be ended. */
  begin(keys: readonly string[]): Origin {
    const tokens = keys.map((key) => this.#tokenOf(key));
    for (const token of tokens) token.reads++;
    return { tokens, deletions: this.#deletions };
  }

  /** Sends the keys of reads, which are sent next; resolves to true where they are followed. */
  follow(origins: readonly Origin[]): Promise<boolean> {
    return this.#options.changes.follow([...new Set(origins.flatMap(({ tokens }) => tokens.map(({ key }) => key)))]);
  }

  /** Holds what was read, unless it is incomplete, hides something, or a key has changed or ceased to be followed. */
  keep(name: string, stored: Stored, { tokens, deletions }: Origin): void {
    this.#answers.delete(name);
    const hides = !stored.areAlive && stored.entries.length > 0;
    if (hides || stored.floor === undefined || !tokens.every((token) => this.#isFollowed(token))) return;
    const page = stored.page && ownCopy(stored.page);
    const parts = BYTES.key * tokens.length + BYTES.drop * stored.entries.length + (page?.length ?? 0);
    const size = BYTES.answer + parts + name.length;
    if (size > this.#options.maxBytes) return;
    // The names are added first: the answers that make room for this one may be the last others of a key.
    for (const token of tokens) token.names.add(name);
    this.#answers.set(name, { stored: page ? { ...stored, page } : stored, tokens, deletions, size });
  }

  end({ tokens }: Origin): void {
    for (const token of tokens) {
      token.reads--;
      this.#forget(token);
    }
  }

  changed(key: string): void {
    const token = this.#tokens.get(key);
    if (!token) return;
    this.#tokens.delete(key);
    for (const name of [...token.names]) this.#discard(name, "changed");
  }

  deleted(drop: string): void {
    this.#deletions++;
    this.#deleted.push(drop);
    if (this.#deleted.length > DELETIONS) this.#deleted.shift();
  }

  /** This forgets everything, since any key may have changed. */
  clear(): void {
    this.#tokens.clear();
    this.#answers.clear();
  }

  #tokenOf(key: string): FollowedKey {
    const token = this.#tokens.get(key) ?? { key, reads: 0, names: new Set<string>() };
    this.#tokens.set(key, token);
    return token;
  }

  #forget(token: FollowedKey): void {
    const isUsed = token.reads > 0 || token.names.size > 0;
    if (!isUsed && this.#isFollowed(token)) this.#tokens.delete(token.key);
  }

  #isFollowed(token: FollowedKey): boolean {
    return this.#tokens.get(token.key) === token;
  }

  #discard(name: string, why: CacheEvent): void {
    if (this.#answers.delete(name)) this.events[why]++;
  }

  /** No drop of the answer is known to be deleted since it was read. */
  #isAlive(one: Answer): boolean {
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
