import { SECOND } from "../../kernel/time.js";

/**
 * State of an author in the registry of pulled authors: how drops reach followers. An author without a state is pushed:
 * drops are written into homes.
 *
 * - `promoting`: into homes and the author's timeline, while the author is added to the sets of followers;
 * - `pulled`: into the author's timeline, which is merged when a home is read;
 * - `lowering`: into both, while the pulled drops are added to homes; then `tiering`;
 * - `tiering`: into homes, while the author is added to the sets of followers;
 * - `tiered`: into homes, tier by tier, and into the author's timeline until the last home is written;
 * - `demoting`: into both, while the pulled drops are added to homes; then `leaving`;
 * - `leaving`: into homes, while the author is removed from the sets of followers.
 */
export const PULL_STATES = ["promoting", "pulled", "lowering", "tiering", "tiered", "demoting", "leaving"] as const;
export type PullState = (typeof PULL_STATES)[number];

const PUSHED_STATES: ReadonlySet<string | undefined> = new Set(["pushed", "leaving", "tiering", "tiered", undefined]);

/**
 * Returns true if homes get all drops of the author. The author's timeline is merged if it exists, and never rebuilt.
 */
export const isPushed = (state: PullState | "pushed" | undefined): boolean => PUSHED_STATES.has(state);

export interface PulledAuthor {
  readonly state: PullState;
  /** An operator's choice, the number of followers, or the number of writes to their homes. */
  readonly by: "hand" | "count" | "pressure";
  /** Begin of the state, in ms since the epoch by the clock of Redis. */
  readonly since: number;
}

export interface Published {
  readonly author: string;
  readonly followers: number;
  readonly drop: string;
  /** Time of the drop's admission, in ms since the epoch. */
  readonly at: number;
}

/** An author whose state began so long ago that no process uses an older copy of the registry. */
export interface Due extends PulledAuthor {
  readonly author: string;
}

export type PullRegistry = ReadonlyMap<string, PulledAuthor>;

/** Returns true if no step is under way. */
export const isSettled = (state: PullState): state is "pulled" | "tiered" => state === "pulled" || state === "tiered";

/** Returns true if newly filled sets of pulled authors (`pullsKey`) have this author. */
export const isMerged = (author: PulledAuthor | undefined): boolean =>
  author !== undefined && author.state !== "leaving";

/** Maximum age of a copy that may be used. */
export const MAX_COPY_AGE_MS = 2 * SECOND;

/**
 * Minimum age of a state before work begins that relies on it: no process uses an older copy then. A copy that is read
 * after the calls it decides about is right even if the process was suspended.
 */
export const PULL_GRACE_MS = 5 * SECOND;

export interface PulledAuthors {
  /** Returns the copy of this process, or undefined if it is older than {@link MAX_COPY_AGE_MS}. */
  copy(): PullRegistry | undefined;
  /**
   * Reads the registry after the call.
   *
   * @throws AppError `unavailable`
   */
  refresh(): Promise<PullRegistry>;
}

export const currentOf = (authorStates: PulledAuthors): PullRegistry | Promise<PullRegistry> =>
  authorStates.copy() ?? authorStates.refresh();

/** Member of `pullsKey`, beside the tokens of authors, that says that the set is complete. */
export const PULLS_COMPLETE = "~complete";
/**
 * Prefix of a member of `pullsKey`, before a nonce that simultaneous fills share. A change of the set removes the key,
 * and these fills start over.
 */
export const PULLS_FILLING = "~filling:";
