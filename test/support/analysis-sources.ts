import { type Post, SKIPPED, type Source } from "../../src/analysis/sources/source.js";
import { AppError, codeOf } from "../../src/kernel/errors.js";
import type { TokenBucket } from "../../src/state/limits/source-tokens.redis.js";

/** A bucket in memory, with as many tokens as it is given. */
export function openBucket(left = Number.POSITIVE_INFINITY) {
  const state = { left, taken: 0, holds: [] as number[] };
  const tryTake = async (): Promise<boolean> => {
    if (state.left === 0) return false;
    state.left--;
    state.taken++;
    return true;
  };
  const bucket: TokenBucket = {
    tryTake,
    take: async () => {
      if (!(await tryTake())) throw new AppError("unavailable", "there is no token left");
    },
    hold: async (ms) => void state.holds.push(ms),
    left: async () => state.left,
  };
  return { bucket, state };
}

const never = new AbortController().signal;

interface ReadOptions {
  readonly limit?: number;
  readonly signal?: AbortSignal;
  /** Who asks. */
  readonly user?: string;
}

/** Posts, and what stands in the place of those that cannot be read. */
export async function readAll(source: Source, account: string, options: ReadOptions = {}) {
  const { limit = 500, signal = never, user = "ada" } = options;
  const posts: (Post | typeof SKIPPED)[] = [];
  for await (const post of source.posts(account, { user, limit, signal })) posts.push(post);
  return posts;
}

export const readPosts = async (...of: Parameters<typeof readAll>): Promise<Post[]> =>
  (await readAll(...of)).filter((post) => post !== SKIPPED);

/** The number of posts read, or the code of the error. */
export const outcome = (source: Source, account: string, options: ReadOptions = {}): Promise<string> =>
  readPosts(source, account, options).then(
    (posts) => `${posts.length} posts`,
    (error: { readonly name: string; readonly code: string }) =>
      error.name === "AccountGone" ? error.code : codeOf(error),
  );
