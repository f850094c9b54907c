import { SECOND } from "../../kernel/time.js";

/**
 * How an author's drops reach followers, by state in the registry of pulled authors. An author without a state is pushed:
 * drops go into homes.
 *
 * - `promoting`: into homes and the author's timeline, while the author is added to what followers pull;
 * - `pulled`: into the author's timeline, which is merged when a home is read;
 * - `lowering`: into both, while what was pulled is added to homes; then `tiering`;
 * - `tiering`: into homes, while the author is added to what followers pull;
 * - `tiered`: into homes, tier by tier, and into the author's timeline until the last one is written;
 * - `demoting`: into both, while what was pulled is added to homes; then `leaving`;
 * - `leaving`: into homes, while the author is removed from what followers pull.
 */
export const PULL_STATES = ["promoting", "pulled", "lowering", "tiering", "tiered", "demoting", "leaving"] as const;
export type PullState = (typeof PULL_STATES)[number];

const PUSHED_STATES: ReadonlySet<string | undefined> = new Set(["pushed", "leaving", "tiering", "tiered", undefined]);

/** Homes get all drops of the author, whose timeline is merged where it exists, and never rebuilt. */
export const isPushed = (state: PullState | "pushed" | undefined): boolean => PUSHED_STATES.has(state);

export interface PulledAuthor {
  readonly state: PullState;
  /** An operator's choice, the number of followers, or the writes to their homes. */
  readonly by: "hand" | "count" | "pressure";
  /** The state began at this time, in ms since the epoch by the clock of Redis. */
  readonly since: number;
}

export interface Published {
  readonly author: string;
  readonly followers: number;
  readonly drop: string;
  /** The drop was admitted at this time, in ms since the epoch. */
  readonly at: number;
}

/** The author's state began so long ago that no process uses a copy from before it. */
export interface Due extends PulledAuthor {
  readonly author: string;
}

export type PullRegistry = ReadonlyMap<string, PulledAuthor>;

/** No step is under way. */
export const isSettled = (state: PullState): state is "pulled" | "tiered" => state === "pulled" || state === "tiered";

/** A newly filled set of pulled authors (`pullsKey`) has those followed authors of whom this is true. */
export const isMerged = (author: PulledAuthor | undefined): boolean =>
  author !== undefined && author.state !== "leaving";

/** A copy that is older may not be used. */
export const MAX_COPY_AGE_MS = 2 * SECOND;

/**
 * Every state lasts at least as long before the work begins that relies on it: no process uses a copy from before the
 * state then. A look at a copy that comes after the calls it decides about holds even if the process was suspended.
 */
export const PULL_GRACE_MS = 5 * SECOND;

export interface PulledAuthors {
  /** Returns the copy of this process, or undefined where it is older than {@link MAX_COPY_AGE_MS}. */
  copy(): PullRegistry | undefined;
  /** Reads the registry after the call. @throws AppError `unavailable` */
  refresh(): Promise<PullRegistry>;
}

export const currentOf = (authorStates: PulledAuthors): PullRegistry | Promise<PullRegistry> =>
  authorStates.copy() ?? authorStates.refresh();

/** `pullsKey` has these members beside the tokens of authors. Without the first one the set is not known. */
export const PULLS_COMPLETE = "~complete";
/** A nonce follows. Fills at once share it. A change of the set removes the key, and these fills start over. */
export const PULLS_FILLING = "~filling:";
