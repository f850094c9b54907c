import type { TimelineEntry } from "../contracts/timelines.js";

/** A GetTimelineResponse without `degraded`, encoded: the store had the whole page, and nothing of it is hidden. */
export type EncodedPage = Buffer;

export interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive; undefined: from the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of so many drops where none of them is hidden; those older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

export interface Stored {
  /** In ms; undefined: the timeline, or what is merged into it, must be rebuilt. */
  readonly floor: number | undefined;
  /** Those nearest to the position first, complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** False: the entries must be compared with the tombstones. */
  readonly areAlive: boolean;
  /** In place of the entries. */
  readonly page?: EncodedPage;
  readonly pulled?: MergedTimelines;
}

/** What must be rebuilt before a timeline can be read. */
export interface Incomplete {
  /** That of the timeline, or of what is merged into it. */
  readonly keys: readonly string[];
  /** False: the reader's pulled authors must be read, too. */
  readonly arePullsKnown: boolean;
}

export const isIncomplete = (read: object): read is Incomplete => "arePullsKnown" in read;

export const incompleteOf = (key: string, pulled: MergedTimelines | undefined): Incomplete => ({
  keys: pulled?.incomplete ?? [key],
  arePullsKnown: pulled?.areKnown ?? true,
});

/** The timelines of pulled authors that are merged into a home. */
export interface MergedTimelines {
  /** False: the reader's pulled authors must be read first. */
  readonly areKnown: boolean;
  readonly keys: readonly string[];
  /** The keys to rebuild, that of the home among them. */
  readonly incomplete: readonly string[];
}
