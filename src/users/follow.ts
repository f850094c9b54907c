import { traceHeaders } from "../delivery/telemetry.js";
import type { FollowManyRequest, FollowManyResponse, FollowRequest, FollowResponse } from "../gen/avion/users.js";
import { AppError, invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import type { ListCache } from "./cache.redis.js";
import type { Pair } from "./edges.js";
import type { FollowStore } from "./follows.sql.js";
import type { ObserveUsers } from "./observe.js";

export interface FollowDeps {
  readonly follows: FollowStore;
  readonly cache: Pick<ListCache, "drop">;
  readonly maxFollowing: number;
  readonly wakeRelay: () => void;
  readonly observe: Pick<ObserveUsers, "followed" | "cacheFailed">;
}

// Each method throws an AppError: `invalid` naming the field, `exhausted` where a user would follow too many.

const MAX_PAIRS = 1_000;

/** Follow and Unfollow. The follower's list is up to date before this resolves, unless Redis is away. */
export function setFollowing(deps: FollowDeps, wanted: boolean): (request: FollowRequest) => Promise<FollowResponse> {
  return async (request) => {
    const pair = { follower: request.follower_id, following: request.following_id };
    readId("follower_id", pair.follower);
    readId("following_id", pair.following);
    if (wanted) refuseSelf("following_id", pair);
    const { changed, version } = await deps.follows.setFollowing({
      ...pair,
      wanted,
      most: deps.maxFollowing,
      traceparent: traceHeaders()["traceparent"],
    });
    if (changed) {
      deps.observe.followed(wanted ? "follow" : "unfollow", 1);
      await afterChange(deps, [pair.follower]);
    }
    return { changed, version };
  };
}

/** All pairs, or none. */
export function followMany(deps: FollowDeps): (request: FollowManyRequest) => Promise<FollowManyResponse> {
  return async ({ follows }) => {
    if (follows.length > MAX_PAIRS) throw invalid("follows", `must be at most ${MAX_PAIRS}`);
    const pairs = follows.map((follow, index) => readPair(`follows.${index}`, follow));
    if (pairs.length === 0) return { changed: 0 };
    const most = deps.maxFollowing;
    const done = await deps.follows.followMany(pairs, { most, traceparent: traceHeaders()["traceparent"] });
    if ("over" in done) {
      const index = pairs.findIndex(({ follower }) => follower === done.over);
      throw new AppError("exhausted", `follows.${index}.following_id: nobody can follow more than ${most}`);
    }
    if (done.changed > 0) {
      deps.observe.followed("follow", done.changed);
      await afterChange(deps, [...new Set(pairs.map(({ follower }) => follower))]);
    }
    return { changed: done.changed };
  };
}

function readPair(field: string, { follower_id, following_id }: FollowManyRequest["follows"][number]): Pair {
  const pair = {
    follower: readId(`${field}.follower_id`, follower_id),
    following: readId(`${field}.following_id`, following_id),
  };
  refuseSelf(`${field}.following_id`, pair);
  return pair;
}

function refuseSelf(field: string, { follower, following }: Pair): void {
  if (follower === following) throw invalid(field, "must not be the follower");
}

/** Drops the followers' cached lists; where Redis is away, the relay drops them before it publishes the events. */
async function afterChange(deps: FollowDeps, followers: readonly string[]): Promise<void> {
  deps.wakeRelay();
  const dropped = await Promise.allSettled(followers.map((follower) => deps.cache.drop("following", follower)));
  if (dropped.some(({ status }) => status === "rejected")) deps.observe.cacheFailed("following");
}
