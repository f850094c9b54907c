import type { TimelineEntry } from "../contracts/timelines.js";
import type { Drop } from "../gen/avion/posts.js";
import type { InTurn } from "../kernel/in-turn.js";

/** What a stored timeline holds next to a position, at one instant. */
export interface Held {
  /** Down to when the timeline is complete, in ms; undefined: it is not, and must be rebuilt. */
  readonly floor: number | undefined;
  /** Nearest to the position first. */
  readonly entries: readonly TimelineEntry[];
}

/** A stretch of a stored timeline. */
export interface Stretch {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive; undefined: from the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
}

/** Everything of a timeline that is known elsewhere. */
export interface Snapshot {
  readonly entries: readonly TimelineEntry[];
  /** Down to when that is complete, in ms; 0: from the start. */
  readonly floor: number;
}

/** The sorted sets as reads use them. */
export interface TimelineStore {
  read(stretch: Stretch): Promise<Held>;
  /** When a drop was created, as far as this timeline or a recent deletion tells. */
  createdAt(key: string, drop: string): Promise<number | undefined>;
  /**
   * Marks a timeline as being rebuilt; returns what it held, or undefined where it is complete. `afresh` marks a
   * complete one too.
   */
  beginRebuild(key: string, mark: number, afresh?: boolean): Promise<readonly string[] | undefined>;
  /** False where the mark is gone: the snapshot is outdated. */
  finishRebuild(key: string, rebuilt: { mark: number; gone: readonly string[]; snapshot: Snapshot }): Promise<boolean>;
  remove(key: string, drops: readonly string[]): Promise<void>;
  /** One rebuild of a timeline at a time, across processes: takes or keeps the lease; false where another process has it. */
  lease(key: string, owner: string, ttlMs: number): Promise<boolean>;
  /** How long the lease still lasts, in ms; 0 where nobody has it. */
  leaseLeft(key: string): Promise<number>;
  release(key: string, owner: string): Promise<void>;
}

/** The upstreams as reads use them. `deadline` is in ms since the epoch. */
export interface Sources {
  /** Everybody a user follows. */
  following(user: string, deadline: number): Promise<readonly string[]>;
  /** An author's drops older than a position, newest first. */
  drops(
    author: string,
    below: TimelineEntry | undefined,
    limits: { count: number; deadline: number },
  ): Promise<readonly Drop[]>;
}

/** The upstreams for one piece of work: its calls come before those of work that asked later. */
export type OpenSources = () => Sources;

/** What bounds the reads of the upstreams, for the whole process. */
export interface ReadBounds {
  readonly openSources: OpenSources;
  readonly inTurn: InTurn;
}

/** What of the local or global timeline the log tells. */
export type ReadSharedLog = (name: "local" | "global") => Promise<Snapshot>;
