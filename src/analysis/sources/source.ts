export interface Post {
  /** The time is in ms since the epoch. */
  readonly createdAt: number;
  /** The number is NaN where the source does not count, as the next three are. */
  readonly likes: number;
  /** The number is that of reposts, without those that quote. */
  readonly shares: number;
  readonly replies: number;
  readonly quotes: number;
}

/** Stands for a post that cannot be read. */
export const SKIPPED = "skipped";

interface PostsOptions {
  /** The analysis is this user's: users share a source. */
  readonly user: string;
  readonly limit: number;
  /** Ends every call and every wait. */
  readonly signal: AbortSignal;
}

/** Posts of an account are read from a source. */
export interface Source {
  /**
   * Yields the newest posts of an account that everybody may see, newest first, without posts of others that it shared:
   * at most `limit`, beside those skipped.
   *
   * @throws AccountGone; AppError `unavailable` in an outage and after the signal; AppError `failed` where only this account fails
   */
  posts(account: string, options: PostsOptions): AsyncIterable<Post | typeof SKIPPED>;
}

/** The source has answered: asking again changes nothing. */
export class AccountGone extends Error {
  override readonly name = "AccountGone";

  constructor(
    readonly code: "account_unknown" | "account_suspended",
    message: string,
  ) {
    super(message);
  }
}
