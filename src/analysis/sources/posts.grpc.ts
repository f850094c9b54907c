import type { TimelineEntry } from "../../contracts/timelines.js";
import { isTooFarAhead } from "../../contracts/times.js";
import { type Drop, Visibility } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import type { Upstreams } from "../../platform/grpc/upstreams.js";
import type { Post, Source } from "./source.js";

/** As many as GetCounts takes. */
const DROPS_A_PAGE = 200;
/** Bounds the calls for a user whose drops are mostly not public. */
const MAX_PAGES = 50;

export type PostReads = Pick<Upstreams, "dropsByUser" | "counts">;

/**
 * Public and unlisted drops of a user of ours. No list of all users exists, so a user nobody knows is one without drops.
 */
export const createPostsSource = (posts: PostReads): Source => ({
  async *posts(user, { limit, signal }) {
    let found = 0;
    let below: TimelineEntry | undefined;
    for (let page = 0; page < MAX_PAGES; page++) {
      if (signal.aborted) throw new AppError("unavailable", "the read ended with the process");
      const { drops, next } = await posts.dropsByUser({ author: user, below, limit: DROPS_A_PAGE, reader: "" });
      for (const post of await counted(posts, user, drops.filter(isOpen).slice(0, limit - found))) {
        found++;
        yield post;
      }
      if (!next || found === limit) return;
      below = next;
    }
  },
});

const isOpen = ({ visibility, deleted, created_at }: Drop): boolean =>
  (visibility === Visibility.PUBLIC || visibility === Visibility.UNLISTED) &&
  !deleted &&
  !isTooFarAhead(created_at, Date.now());

async function counted({ counts }: PostReads, user: string, drops: readonly Drop[]): Promise<Post[]> {
  if (drops.length === 0) return [];
  const answered = await counts(
    user,
    drops.map(({ drop_id }) => drop_id),
  );
  const byId = new Map(answered.map((count) => [count.drop_id, count]));
  return drops.map(({ drop_id, created_at }) => {
    const { likes = 0, shares = 0, replies = 0 } = byId.get(drop_id) ?? {};
    return { createdAt: created_at, likes, shares, replies, quotes: 0 };
  });
}
