import type { DropPage, TimelineEntry } from "../contracts/timelines.js";
import type { IdPage } from "../kernel/paging.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";

export type ReadFollowers = (author: string, token: string) => Promise<IdPage>;
export type ReadFollowing = (user: string, token: string) => Promise<IdPage>;

/** Undefined: the newest ones. */
export type ReadAuthorDrops = (author: string, below: TimelineEntry | undefined) => Promise<DropPage>;

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
    readAuthorDrops: (author, below) => upstreams.dropsByUser({ author, below, limit: DROPS_A_PAGE }),
  };
}
