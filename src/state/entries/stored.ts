import type { TimelineEntry } from "../../contracts/timelines.js";
import type { HiddenUsers } from "../hidden/hidden.js";

/** A GetTimelineResponse without `degraded`, encoded: the store had the whole page, and hides nothing of it. */
export type EncodedPage = Buffer;

export interface Range {
  readonly key: string;
  readonly direction: "older" | "newer";
  /** Exclusive position; undefined for the end. */
  readonly from: TimelineEntry | undefined;
  readonly count: number;
  /** Asks for an encoded page of this number of drops, if none of them is hidden. Drops older than `since` (ms) are. */
  readonly page?: { readonly drops: number; readonly since: number } | undefined;
}

/** Number of drops that are read in addition, to replace hidden ones. */
export const SPARE = 16;

export interface Stored {
  /** Floor, ms. Undefined if the timeline, or one that is merged into it, must be rebuilt. */
  readonly floor: number | undefined;
  /** Entries, nearest to the position first, complete down to `floor`. */
  readonly entries: readonly TimelineEntry[];
  /** Number of entries that were asked for, if they are judged afterwards. */
  readonly asked?: number;
  /** False: the entries must be compared to the tombstones. */
  readonly areAlive: boolean;
  /** True if the timeline, or one that is merged into it, has reposts. They have their bylines. */
  readonly hasReposts?: boolean;
  /** Encoded page, which replaces the entries, except reposts that it covers. */
  readonly page?: EncodedPage;
  /** Drops among the entries that the viewer does not see. */
  readonly hidden?: ReadonlySet<string> | undefined;
  /** Hidden users of a user, in place of entries. */
  readonly relations?: HiddenUsers | undefined;
  /** Keys of pulled authors' timelines that are merged into a home. */
  readonly merged?: readonly string[] | undefined;
  /** Set if other keys than that of the timeline must be rebuilt. */
  readonly incomplete?: Incomplete | undefined;
}

/** Timelines that must be rebuilt before one can be read. */
export interface Incomplete {
  /** Keys of the timeline, or of those merged into it. */
  readonly keys: readonly string[];
  /** False: the reader's pulled authors must be read, too. */
  readonly arePullsKnown: boolean;
}

export const isIncomplete = (read: object): read is Incomplete => "arePullsKnown" in read;

export const incompleteOf = (key: string, { incomplete }: Pick<Stored, "incomplete">): Incomplete =>
  incomplete ?? { keys: [key], arePullsKnown: true };
