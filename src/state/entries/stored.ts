import type { TimelineEntry } from "../../contracts/timelines.js";
import type { HiddenUsers } from "../hidden/hidden.js";

/** A GetTimelineResponse without `degraded`, encoded: the store had the whole page, and nothing of it is hidden. */
export type EncodedPage = Buffer;

export interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** The position is exclusive, and undefined for the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of so many drops where none of them is hidden; those older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

/** So many more are read than asked for, in place of drops that are hidden. */
export const SPARE = 16;

export interface Stored {
  /** The floor is in ms. It is undefined where the timeline, or what is merged into it, must be rebuilt. */
  readonly floor: number | undefined;
  /** The entries nearest to the position come first. They are complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** The entries must be compared with the tombstones where this is false. */
  readonly areAlive: boolean;
  /** An encoded page replaces the entries. */
  readonly page?: EncodedPage;
  /** Drops among the entries that the viewer does not see. */
  readonly hidden?: ReadonlySet<string> | undefined;
  /** The hidden users of a user, in place of entries. */
  readonly relations?: HiddenUsers | undefined;
  /** The timelines of pulled authors that are merged into a home. */
  readonly merged?: readonly string[] | undefined;
  /** It is set where more, or something else, must be rebuilt than the timeline that was read. */
  readonly incomplete?: Incomplete | undefined;
}

/** All of this must be rebuilt before a timeline can be read. */
export interface Incomplete {
  /** The keys are those of the timeline, or of what is merged into it. */
  readonly keys: readonly string[];
  /** The reader's pulled authors must be read, too, where this is false. */
  readonly arePullsKnown: boolean;
}

export const isIncomplete = (read: object): read is Incomplete => "arePullsKnown" in read;

export const incompleteOf = (key: string, { incomplete }: Pick<Stored, "incomplete">): Incomplete =>
  incomplete ?? { keys: [key], arePullsKnown: true };
