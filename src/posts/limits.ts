import type { PageLimits } from "../kernel/paging.js";

/** What a drop may be. */
export interface PostsLimits {
  /** Unicode code points. */
  readonly maxBodyCharacters: number;
  /** Unicode code points. */
  readonly maxSummaryCharacters: number;
  /** Of a direct drop. */
  readonly maxRecipients: number;
  /** How long ago an imported drop may have been created: each month takes partitions of its own. */
  readonly maxImportAgeDays: number;
}

/** The limits where nothing else is configured. */
export const DEFAULT_POSTS_LIMITS: PostsLimits = {
  maxBodyCharacters: 5_000,
  maxSummaryCharacters: 500,
  maxRecipients: 20,
  maxImportAgeDays: 3_650,
};

/** Pages of an author's drops. */
export const AUTHOR_PAGES: PageLimits = { usual: 20, most: 1_000 };

/** Pages of changes: drops without their text, which fit a message of 4 MiB with all their recipients. */
export const CHANGE_PAGES: PageLimits = { usual: 1_000, most: 1_000 };

/** Pages of drops with their text: 100 of the longest fit a message of 4 MiB. */
export const TEXT_PAGES: PageLimits = { usual: 20, most: 100 };

/** Drops asked for by their ids at once: with their text, and their counts only. */
export const MOST_DROPS = 100;
export const MOST_COUNTS = 200;
