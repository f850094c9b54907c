import type { TimelineEvent } from "../../contracts/events.js";
import type { EdgeChange, EdgeState } from "../../contracts/fences.js";
import type { Lease } from "../../kernel/lease.js";

/** A deletion, and when it was admitted, in ms since the epoch. */
export interface Deletion {
  readonly drop: string;
  readonly time: number;
}

/** What the fences are refilled from. */
export interface Remembered {
  readonly deletions: readonly Deletion[];
  readonly edges: readonly EdgeChange[];
}

/**
 * What the fences are kept in: the tombstones, and the edges in parts by author. Each has a floor that lives and is lost
 * with it. `complete` is false, and an answer undefined, where the one that is asked was lost.
 */
export interface FenceStore {
  recordTombstones(entries: readonly Deletion[]): Promise<{ complete: boolean }>;
  tombstonedAmong(drops: readonly string[]): Promise<{ dead: ReadonlySet<string>; complete: boolean }>;
  /** Remembers nothing where the part was lost. */
  changeEdge(change: EdgeChange): Promise<EdgeState | undefined>;
  unfollowedAmong(author: string, users: readonly string[]): Promise<string[] | undefined>;
  /** Who was noted at `from` or later; `next` is where the rest begins, undefined where there is none. */
  recentUnfollowers(author: string, from: number): Promise<{ users: string[]; next: number | undefined } | undefined>;
  generation(author: string, otherwise: string): Promise<string>;
  setGeneration(author: string, name: string): Promise<void>;
  /** Marks what was lost as being refilled; resolves to how many keys that are. */
  beginRefill(mark: number): Promise<number>;
  remember(some: Remembered): Promise<void>;
  /** Says that what bears the mark is complete; resolves to how many keys that are: fewer where some were lost again. */
  finishRefill(mark: number): Promise<number>;
  /** Held by the process that refills. */
  readonly lease: Lease;
}

/** Hands out every deletion and edge change the log holds, oldest first, with the time it was admitted. */
export type ReadHistory = (take: (event: TimelineEvent, time: number) => Promise<void>) => Promise<void>;
