import { traceHeaders } from "../delivery/traced.js";
import type { FollowManyRequest, FollowManyResponse } from "../gen/avion/users.js";
import { AppError, invalid } from "../kernel/errors.js";
import { announce, type FollowDeps, refuseSelf } from "./follow.js";
import { readUserId } from "./input.js";
import type { Pair } from "./ports.js";

const MOST_PAIRS = 1_000;

/**
 * FollowMany: all pairs, or none.
 *
 * @throws AppError `invalid` naming the pair and the field; `exhausted` where a user would follow too many
 */
export function followMany(deps: FollowDeps): (request: FollowManyRequest) => Promise<FollowManyResponse> {
  return async ({ follows }) => {
    if (follows.length > MOST_PAIRS) throw invalid("follows", `must be at most ${MOST_PAIRS}`);
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
      await announce(deps, [...new Set(pairs.map(({ follower }) => follower))]);
    }
    return { changed: done.changed };
  };
}

function readPair(field: string, { follower_id, following_id }: FollowManyRequest["follows"][number]): Pair {
  const pair = {
    follower: readUserId(`${field}.follower_id`, follower_id),
    following: readUserId(`${field}.following_id`, following_id),
  };
  refuseSelf(`${field}.following_id`, pair);
  return pair;
}
