export interface Post {
  /** The time is in ms since the epoch. */
  readonly createdAt: number;
  /** NaN if the source does not count likes. The same holds for the next three. */
  readonly likes: number;
  /** The number is that of reposts, without those that quote. */
  readonly shares: number;
  readonly replies: number;
  readonly quotes: number;
}

export const SKIPPED = "skipped";

interface PostsOptions {
  /** Users share a source. */
  readonly user: string;
  readonly limit: number;
  /** Ends every call and every wait. */
  readonly signal: AbortSignal;
}

export interface Source {
  /**
   * Yields at most `limit` posts that everybody may see, newest first, beside those skipped. @throws AccountGone;
   * AppError `unavailable` in an outage and after the signal; AppError `failed` if only this account fails
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
