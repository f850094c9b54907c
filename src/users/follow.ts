import { traceHeaders } from "../delivery/traced.js";
import type { FollowRequest, FollowResponse } from "../gen/avion/users.js";
import { invalid } from "../kernel/errors.js";
import { readUserId } from "./input.js";
import type { FollowStore, ListCache, ObserveUsers, Pair } from "./ports.js";

/** What follows are written with. */
export interface FollowDeps {
  readonly follows: FollowStore;
  readonly cache: Pick<ListCache, "drop">;
  /** How many people one may follow. */
  readonly maxFollowing: number;
  /** Tells the relay that there is something to publish. */
  readonly wakeRelay: () => void;
  readonly observe: Pick<ObserveUsers, "followed" | "cacheFailed">;
}

/**
 * Follow, or with `wanted` false Unfollow. The follower's list shows it before this resolves, unless Redis is away.
 *
 * @throws AppError `invalid` naming the field; `exhausted` beyond the number of people one may follow
 */
export function setFollowing(deps: FollowDeps, wanted: boolean): (request: FollowRequest) => Promise<FollowResponse> {
  return async (request) => {
    const pair = { follower: request.follower_id, following: request.following_id };
    readUserId("follower_id", pair.follower);
    readUserId("following_id", pair.following);
    if (wanted) refuseSelf("following_id", pair);
    const { changed, version } = await deps.follows.setFollowing({
      ...pair,
      wanted,
      most: deps.maxFollowing,
      traceparent: traceHeaders()["traceparent"],
    });
    if (changed) {
      deps.observe.followed(wanted ? "follow" : "unfollow", 1);
      await announce(deps, [pair.follower]);
    }
    return { changed, version };
  };
}

/** Refuses a pair of one user. @throws AppError `invalid` */
export function refuseSelf(field: string, { follower, following }: Pair): void {
  if (follower === following) throw invalid(field, "must not be the follower");
}

/** After a change: forgets the followers' lists and wakes the relay, which sees to it again before it publishes. */
export async function announce(deps: FollowDeps, followers: readonly string[]): Promise<void> {
  deps.wakeRelay();
  const dropped = await Promise.allSettled(followers.map((follower) => deps.cache.drop("following", follower)));
  if (dropped.some(({ status }) => status === "rejected")) deps.observe.cacheFailed("following");
}
