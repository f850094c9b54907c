import type { Upstreams } from "../platform/grpc/upstreams.js";
import type { ReadFollowers } from "./audience.js";
import type { ReadAuthorDrops, ReadFollowing } from "./ports.js";

const DROPS_A_PAGE = 200;
const FOLLOWING_A_PAGE = 1_000;

/** The upstreams as fan-out reads them. */
export function createSources(
  upstreams: Upstreams,
  options: { readonly followersAPage: number },
): {
  readFollowers: ReadFollowers;
  readFollowing: ReadFollowing;
  readAuthorDrops: ReadAuthorDrops;
} {
  return {
    readFollowers: (user, token) => upstreams.followers({ user, token, size: options.followersAPage }),
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
