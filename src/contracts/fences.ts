import { randomUUID } from "node:crypto";
import { leftOut } from "../kernel/failpoints.js";

/** A change of a follow edge. */
export interface EdgeChange {
  readonly follower: string;
  readonly following: string;
  readonly version: number;
  readonly follows: boolean;
}

/** The newest that is known of an edge. */
export interface EdgeState {
  readonly version: number;
  readonly follows: boolean;
}

/**
 * What wins over late events: which drops are deleted, which version of a
 * follow edge is the newest, and under which generation an author's followers
 * are to be read. It is remembered as long as the log, and refilled from the
 * log where Redis lost it, before anything is decided by it.
 */
export interface Fences {
  /** Sets a drop's tombstone; `time` is that of the deletion, in ms since the epoch. */
  recordTombstone(drop: string, time: number): Promise<void>;
  /** All drops created before this have gone for their age, in ms since the epoch; 0: none has. */
  retentionStart(): number;
  /** Which of these drops are deleted. */
  tombstonedAmong(drops: readonly string[]): Promise<ReadonlySet<string>>;
  /**
   * Remembers a change unless a newer one is known, and returns the newest. Who is said to have left is noted as a
   * recent unfollower before anything else, also where a newer follow is known.
   */
  changeEdge(change: EdgeChange): Promise<EdgeState>;
  /** Which of these users are known to have left the author. */
  unfollowedAmong(author: string, users: readonly string[]): Promise<string[]>;
  /**
   * Who was noted as having left the author at `since` (ms since the epoch) or later, page by page: everybody who
   * had been when it was called, and may be some who are meanwhile.
   */
  recentUnfollowers(author: string, since: number): AsyncIterable<readonly string[]>;
  /** Names the follower list in force; unequal to any earlier name once the list changed or the name was lost. */
  generation(author: string): Promise<string>;
  renewGeneration(author: string): Promise<void>;
}

/** A new name of a follower list; it says since when it is in force, and no two are equal. */
export const nameGeneration = (): string => `${Date.now()}:${randomUUID()}`;

/** Since when a generation is in force, in ms since the epoch; infinite where its name does not say. */
export function generationSince(name: string): number {
  const [, since] = /^(\d+):/.exec(name) ?? [];
  return since === undefined ? Number.POSITIVE_INFINITY : Number(since);
}

interface Write {
  /** Resolves to false where nothing was written. */
  readonly write: () => Promise<unknown>;
  readonly tombstonedAmong: Fences["tombstonedAmong"];
  readonly remove: (deleted: readonly string[]) => Promise<unknown>;
}

/**
 * Writes drops to timelines, then looks for their tombstones, then removes those that have one: a deletion sets the
 * tombstone before it removes, so that one of the two sees the other.
 *
 * @returns the deleted ones; undefined where nothing was written
 */
export async function writeUnlessDeleted(
  drops: readonly string[],
  { write, tombstonedAmong, remove }: Write,
): Promise<ReadonlySet<string> | undefined> {
  if ((await write()) === false) return undefined;
  const deleted = leftOut("tombstone-check") ? new Set<string>() : await tombstonedAmong(drops);
  if (deleted.size > 0) await remove([...deleted]);
  return deleted;
}
