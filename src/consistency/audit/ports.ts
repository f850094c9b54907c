import type { Drop } from "../../gen/avion/posts.js";

/** A drop of a timeline; its score is when it was created, in ms since the epoch. */
export interface Entry {
  readonly drop: string;
  readonly score: number;
}

/** A timeline, stored or as it should be. */
export interface Contents {
  /** Complete above this time, in ms since the epoch; 0: from the start. */
  readonly floor: number;
  readonly entries: readonly Entry[];
}

/** The timelines of the service, by kind. */
export const TIMELINES = ["home", "local", "global"] as const;
export type TimelineKind = (typeof TIMELINES)[number];

/** Everything an audit of one kind of timeline works with. A home is named by its user, the others by themselves. */
export interface AuditDeps {
  /** Undefined where nothing says that it is complete: the next read rebuilds it. */
  readonly readStored: (name: string) => Promise<Contents | undefined>;
  /** The newest `count` drops created after `floor`, by the upstreams or the log. Times in ms since the epoch. */
  readonly readExpected: (name: string, of: { floor: number; count: number; deadline: number }) => Promise<Contents>;
  /** Reads hide what was created before, in ms since the epoch. */
  readonly retentionStart: () => number;
  readonly tombstonedAmong: (drops: readonly string[]) => Promise<ReadonlySet<string>>;
  /** From when on admitted events may not have been applied by now, in ms since the epoch. */
  readonly readBacklogStart: () => Promise<number>;
  /** Rebuilds a timeline from where it is known apart from Redis. */
  readonly rebuild: (name: string) => Promise<void>;
  /** Drops a stored timeline holds at most. */
  readonly maxEntries: number;
  /** What is younger than this, in ms, is not judged. */
  readonly settleMs: number;
}

/** One timeline: a home by its user, local or global by itself. */
export interface TimelinePlace {
  readonly kind: TimelineKind;
  readonly name: string;
}

/** What a timeline holds of one drop, at one instant. */
export interface StoredEntry {
  readonly floor: number | undefined;
  readonly score: number | undefined;
}

/** Everything checks of publications work with. */
export interface PublicationDeps extends Pick<AuditDeps, "tombstonedAmong" | "readBacklogStart"> {
  readonly readEntry: (place: TimelinePlace, drop: string) => Promise<StoredEntry>;
  /** Some followers of an author, at random; their list has about so many pages. */
  readonly sampleFollowers: (author: string, pages: number) => Promise<readonly string[]>;
  /** The drop by the upstreams; undefined where it is deleted or unknown. */
  readonly findDrop: (author: string, drop: string, createdAt: number) => Promise<Drop | undefined>;
  /** Which of these users are known to have left the author. */
  readonly unfollowedAmong: (author: string, users: readonly string[]) => Promise<readonly string[]>;
  /** Rebuilds a timeline, and counts what became of that. */
  readonly repair: (place: TimelinePlace) => Promise<void>;
  /** True while Redis may lack what it had confirmed. */
  readonly maybeLost: () => boolean;
  /** Between the first look and the second, in ms. */
  readonly recheckMs: number;
}
