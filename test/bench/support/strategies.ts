import { above, type Population, perDay, readsOf } from "./population.js";
import type { Followed } from "./readers.js";

/** As TIMELINE_MAX_ENTRIES. */
export const CAP = 1_000;
const YEAR_S = 365 * 86_400;

/** An author with more followers than the threshold is pulled: at 0 everybody, at Infinity nobody. */
export interface Strategy {
  readonly threshold: number;
  readonly pulledAuthors: number;
  /** Home entries and entries of authors' timelines written for a drop: write amplification. */
  readonly entriesADrop: number;
  /** Entries a second: into homes, and into authors' timelines. */
  readonly pushed: number;
  readonly pulled: number;
  /** Author timelines merged: read amplification. */
  readonly merged: Followed;
  /** Followers of the biggest author who is pushed. */
  readonly longest: number;
}

const NONE: Followed = { perRead: 0, mean: 0, p50: 0, p99: 0, max: 0 };

export function strategyAt(
  threshold: number,
  population: Population,
  readers: ReadonlyMap<number, Followed>,
): Strategy {
  const [all, big] = [above(0, population), above(threshold, population)];
  const isPush = threshold === Number.POSITIVE_INFINITY;
  const merged = isPush ? NONE : readers.get(threshold);
  if (merged === undefined) throw new Error(`no readers are counted for the threshold ${threshold}`);
  // An author's own home holds each of the author's drops, pushed or not.
  const pushed = all.entries - big.entries + all.drops;
  return {
    ...{ threshold, pulledAuthors: big.authors, merged, pushed, pulled: big.drops },
    entriesADrop: (pushed + big.drops) / all.drops,
    longest: Math.min(threshold, population.most),
  };
}

/** µs of Redis. */
export interface RedisCosts {
  readonly entry: number;
  readonly page: number;
  /** One more author merged into a page. */
  readonly author: number;
}

export interface Cores {
  readonly writes: number;
  readonly reads: number;
  readonly all: number;
}

/** CPU of Redis, in cores, for entries and first pages. `readsAUser`: as a share of the published reads. */
export function coresOf(strategy: Strategy, users: number, costs: RedisCosts, readsShare = 1): Cores {
  const writes = ((strategy.pushed + strategy.pulled) * costs.entry) / 1e6;
  const pages = readsShare * readsOf(users);
  const reads = (pages * (costs.page + strategy.merged.perRead * costs.author)) / 1e6;
  return { writes, reads, all: writes + reads };
}

/** Bytes in Redis: homes full to their cap, a year of drops in an author's timeline, and the pulled authors of each reader. */
export function bytesOf(
  strategy: Strategy,
  population: Population,
  bytes: { readonly entry: number; readonly pullsMember: number },
): { readonly homes: number; readonly authors: number; readonly pulls: number } {
  const kept = population.cells
    .filter((cell) => cell.above >= strategy.threshold && cell.authors > 0)
    .reduce((sum, { authors, drops }) => sum + authors * Math.min(CAP, (drops / authors) * YEAR_S), 0);
  return {
    homes: strategy.threshold === 0 ? 0 : population.users * CAP * bytes.entry,
    authors: kept * bytes.entry,
    pulls: population.users * strategy.merged.mean * bytes.pullsMember,
  };
}

/** Pulling takes less CPU of Redis from so many drops a day of an author, however many followers there are. */
export function breakEven(population: Population, readers: ReadonlyMap<number, Followed>, costs: RedisCosts): number {
  const everybody = readers.get(0);
  if (everybody === undefined) throw new Error("no readers are counted");
  const readsOfAFollower = (readsOf(population.users) / population.users) * (everybody.perRead / everybody.mean);
  return perDay((readsOfAFollower * costs.author) / costs.entry);
}
