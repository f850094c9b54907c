import { LRUCache } from "lru-cache";

const MIB = 1_024 * 1_024;

/**
 * Upper bound of the memory of each cache of a process, bytes. docs/capacity.md has the same table with the roles; a test
 * fills each cache with the longest ids. The cache `pages` takes `TIMELINE_READ_CACHE_BYTES`.
 */
export const CACHE_BYTES = {
  affectedReaders: 4 * MIB,
  answeredCalls: 2 * MIB,
  authorPageSizes: 4 * MIB,
  bylines: 16 * MIB,
  followers: 96 * MIB,
  hiddenUsers: 16 * MIB,
  hotUsers: 4 * MIB,
  interruptedReads: 16 * MIB,
  keyLists: 48 * MIB,
  leadingCalls: 8 * MIB,
  leftOutItems: MIB,
  listReaders: 16 * MIB,
  openDrops: 8 * MIB,
  producers: 4 * MIB,
  returns: MIB,
  seenPages: 16 * MIB,
  standingBylines: 16 * MIB,
  unansweredRelations: 4 * MIB,
} as const;

export type CacheName = keyof typeof CACHE_BYTES;

/** Upper bound of the memory of a text, bytes: V8 takes one or two for a character. */
export const textBytes = (text: string): number => 24 + 2 * text.length;

/** Upper bound of the memory of an array of texts, bytes. */
export const textsBytes = (texts: readonly string[]): number =>
  texts.reduce((bytes, text) => bytes + 8 + textBytes(text), 16);

/** Memory of an entry of lru-cache 11 beside its key and value, bytes: measured, with room for growing arrays. */
const ENTRY_BYTES = 250;

interface CacheOptions<Value> {
  /** Memory of a value, bytes. */
  readonly sizeOf: (value: Value) => number;
  /** Time to live, ms. Default: for ever. */
  readonly ttl?: number;
}

/** Makes a cache that discards the entries used longest ago beyond its bound in bytes. */
export const createCache = <Value extends object | string | number | boolean>(
  name: CacheName,
  { sizeOf, ttl = 0 }: CacheOptions<Value>,
): LRUCache<string, Value> =>
  new LRUCache({
    maxSize: CACHE_BYTES[name],
    sizeCalculation: (value, key) => ENTRY_BYTES + textBytes(key) + sizeOf(value),
    ttl,
  });
