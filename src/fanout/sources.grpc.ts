import type { Drop } from "../gen/avion/posts.js";
import type { IdPage } from "../kernel/paging.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";

export type ReadFollowers = (author: string, token: string) => Promise<IdPage>;
export type ReadFollowing = (user: string, token: string) => Promise<IdPage>;

/** An author's drops, newest first, older than the given position. */
export type ReadAuthorDrops = (
  author: string,
  below: { before: number; drop: string } | undefined,
) => Promise<readonly Drop[]>;

const DROPS_A_PAGE = 200;
const FOLLOWING_A_PAGE = 1_000;

export interface Sources {
  readonly readFollowers: ReadFollowers;
  readonly readFollowing: ReadFollowing;
  readonly readAuthorDrops: ReadAuthorDrops;
}

export function createSources(upstreams: Upstreams, followersAPage: number): Sources {
  return {
    readFollowers: (user, token) => upstreams.followers({ user, token, size: followersAPage }),
    readFollowing: (user, token) => upstreams.following({ user, token, size: FOLLOWING_A_PAGE }),
    readAuthorDrops: (author, below) =>
      upstreams.dropsByUser({
        user_id: author,
        limit: DROPS_A_PAGE,
        max_id: below?.drop ?? "",
        before: below?.before ?? 0,
      }),
  };
}
