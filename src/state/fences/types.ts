import { randomUUID } from "node:crypto";
import { isEdge, type TimelineEvent } from "../../contracts/events.js";
import type { Version } from "../../contracts/versions.js";
import { sharedNow } from "../../kernel/time.js";

export interface EdgeChange {
  readonly follower: string;
  readonly following: string;
  readonly version: Version;
  readonly follows: boolean;
}

/** Returns the edge that an event changes. A user cannot unfollow themselves: their own drops stay in their home. */
export function edgesIn(event: TimelineEvent): EdgeChange[] {
  if (!isEdge(event)) return [];
  const { follower_id: follower, following_id: following, version } = event.payload;
  return follower === following ? [] : [{ follower, following, version, follows: event.name === "user_followed" }];
}

export const edgeName = ({ follower, following }: Pick<EdgeChange, "follower" | "following">): string =>
  JSON.stringify([follower, following]);

/** Deletion of a drop. `time` is in ms since the epoch. */
export interface Deletion {
  readonly drop: string;
  readonly author?: string | undefined;
  readonly time: number;
}

export interface EdgeState {
  readonly version: Version;
  readonly follows: boolean;
}

/**
 * Fences, which decide against late events. They live longer than the log, and are refilled from it if Redis lost them.
 */
export interface Fences {
  /** Returns the authors of the drops; undefined for an unknown author, whose drop is in nobody's home. */
  recordTombstones(deletions: readonly Deletion[]): Promise<ReadonlyMap<string, string | undefined>>;
  /** Returns the time before which drops are removed, in ms since the epoch; 0: every drop is kept. */
  retentionStart(): number;
  tombstonedAmong(drops: readonly string[]): Promise<ReadonlySet<string>>;
  /**
   * Returns the newest version after each change. An unfollow records the recent unfollower first, even if a newer
   * follow is known.
   */
  changeEdges(changes: readonly EdgeChange[]): Promise<readonly EdgeState[]>;
  /** Returns the newest versions of edges whose changes are recorded. */
  newestEdges(changes: readonly EdgeChange[]): Promise<readonly EdgeState[]>;
  /** Records the edges as given, even if a newer version is known: that change was undone. */
  replaceEdges(changes: readonly EdgeChange[]): Promise<void>;
  /** Yields the newest versions of all edges, including changes that the log may have lost. */
  allEdges(): AsyncIterable<EdgeChange>;
  unfollowedAmong(author: string, users: readonly string[]): Promise<string[]>;
  /** Yields users recorded at `since` (ms since the epoch) or later, and maybe those recorded meanwhile. */
  recentUnfollowers(author: string, since: number): AsyncIterable<readonly string[]>;
  /**
   * Returns the names of the authors' current follower lists. A name changes with its list, and if the name is lost.
   */
  generations(authors: readonly string[]): Promise<ReadonlyMap<string, string>>;
  renewGenerations(authors: readonly string[]): Promise<void>;
  /** Removes authors' deleted drops from the homes of these users, by author. */
  removeDeleted(users: ReadonlyMap<string, readonly string[]>): Promise<void>;
}

export const nameGeneration = (): string => `${sharedNow()}:${randomUUID()}`;

export function generationSince(name: string): number {
  const [, since] = /^(\d+):/.exec(name) ?? [];
  return since === undefined ? Number.POSITIVE_INFINITY : Number(since);
}

interface Write {
  readonly write: () => Promise<unknown>;
  readonly tombstonedAmong: Fences["tombstonedAmong"];
  readonly remove: (deleted: readonly string[]) => Promise<unknown>;
}

/**
 * Writes drops, and removes those that are deleted. A deletion sets the tombstone before it removes the drop: a check
 * after the write misses no deletion.
 */
export async function writeUnlessDeleted(
  drops: readonly string[],
  { write, tombstonedAmong, remove }: Write,
): Promise<ReadonlySet<string> | undefined> {
  if ((await write()) === false) return undefined;
  const deleted = await tombstonedAmong(drops);
  if (deleted.size > 0) await remove([...deleted]);
  return deleted;
}
