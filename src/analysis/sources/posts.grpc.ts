import { type DropPage, NO_DROPS, type TimelineEntry } from "../../contracts/timelines.js";
import { isTooFarAhead } from "../../contracts/times.js";
import { type Counts, type Drop, Visibility } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { sharedNow } from "../../kernel/time.js";
import { isInvalidArgument, isNotFound, isUnimplemented, type Upstreams } from "../../upstreams/upstreams.grpc.js";
import { AccountGone, type Post, type Source } from "./source.js";

/** GetCounts takes as many drops. */
const DROPS_A_PAGE = 200;
/** Bounds the calls for a user whose drops are mostly not public. */
const MAX_PAGES = 50;

export type PostReads = Pick<Upstreams, "dropsByUser" | "counts">;
export type UserReads = Pick<Upstreams, "profile" | "followers" | "following">;

/** Any drop proves that the user exists; without one a profile does. `users` is undefined without a UserService. */
export const createPostsSource = (posts: PostReads, users: UserReads | undefined): Source => ({
  async *posts(user, { limit, signal }) {
    // A drop out of its place may come again in it.
    const seen = new Set<string>();
    let below: TimelineEntry | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      if (signal.aborted) throw new AppError("unavailable", "the read ended with the process");
      const request = { author: user, below, limit: DROPS_A_PAGE, reader: "" };
      const { drops, next } = await posts.dropsByUser(request).catch(noneIfUnknown);
      const fresh = drops.filter((drop) => isOpen(drop) && !seen.has(drop.drop_id)).slice(0, limit - seen.size);
      for (const { drop_id } of fresh) seen.add(drop_id);
      yield* await counted(posts, user, fresh);
      if (page === 0 && drops.length === 0 && !next && !(await exists(users, user)))
        throw new AccountGone("account_unknown", "no drop, and no profile in UserService");
      if (!next || seen.size === limit) return;
      below = next;
    }
  },
});

/** Knows a user by the same rule as {@link createPostsSource}. */
export const createIsUser =
  (posts: PostReads, users: UserReads) =>
  async (user: string): Promise<boolean> => {
    const request = { author: user, below: undefined, limit: 1, reader: "" };
    const { drops, next } = await posts.dropsByUser(request).catch(noneIfUnknown);
    return drops.length > 0 || next !== undefined || exists(users, user);
  };

const isOpen = ({ visibility, deleted, created_at, repost_of }: Drop): boolean =>
  (visibility === Visibility.PUBLIC || visibility === Visibility.UNLISTED) &&
  !deleted &&
  repost_of === "" &&
  !isTooFarAhead(created_at, sharedNow());

function noneIfUnknown(error: unknown): DropPage {
  if (isNotFound(error)) return NO_DROPS;
  throw error;
}

/** A UserService without profiles names in its lists of follows only users who exist. */
async function exists(users: UserReads | undefined, user: string): Promise<boolean> {
  if (users === undefined) return false;
  try {
    await users.profile(user);
    return true;
  } catch (error) {
    if (isNotFound(error) || isInvalidArgument(error)) return false;
    if (!isUnimplemented(error)) throw error;
  }
  const first = { user, size: 1, token: "" };
  const lists = await Promise.all([users.following(first), users.followers(first)].map(emptyIfUnknown));
  return lists.some(({ ids }) => ids.length > 0);
}

const emptyIfUnknown = <Page extends { readonly ids: readonly string[] }>(asked: Promise<Page>) =>
  asked.catch((error): { readonly ids: readonly string[] } => {
    if (isNotFound(error)) return { ids: [] };
    throw error;
  });

async function counted({ counts }: PostReads, user: string, drops: readonly Drop[]): Promise<Post[]> {
  if (drops.length === 0) return [];
  const ids = drops.map(({ drop_id }) => drop_id);
  const answered = await counts(user, ids).catch((error): undefined => {
    if (!isUnimplemented(error)) throw error;
  });
  const byId = new Map(answered?.map((count) => [count.drop_id, count]));
  return drops.map(({ drop_id, created_at }) => ({
    createdAt: created_at,
    ...(answered === undefined ? NOT_COUNTED : reactionsOf(byId.get(drop_id))),
  }));
}

const NOT_COUNTED = { likes: Number.NaN, shares: Number.NaN, replies: Number.NaN, quotes: Number.NaN };

const reactionsOf = ({ likes = 0, shares = 0, replies = 0 }: Partial<Counts> = {}) => ({
  likes,
  shares,
  replies,
  quotes: 0,
});
