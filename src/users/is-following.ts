import type { IsFollowingRequest, IsFollowingResponse } from "../gen/avion/users.js";
import { invalid } from "../kernel/errors.js";
import type { Bounded } from "./bounded.js";
import { readUserId } from "./input.js";
import type { EdgeStore } from "./ports.js";

const MOST_IDS = 1_000;

/** IsFollowing. @throws AppError `invalid` naming the field */
export function isFollowing({
  edges,
  bounded,
}: {
  readonly edges: EdgeStore;
  readonly bounded: Bounded;
}): (request: IsFollowingRequest) => Promise<IsFollowingResponse> {
  return async ({ follower_id, following_ids }) => {
    const user = readUserId("follower_id", follower_id);
    if (following_ids.length > MOST_IDS) throw invalid("following_ids", `must be at most ${MOST_IDS}`);
    following_ids.forEach((id, index) => {
      readUserId(`following_ids.${index}`, id);
    });
    if (following_ids.length === 0) return { following: [] };
    const followed = await bounded(() => edges.followed(user, following_ids));
    return { following: following_ids.map((id) => followed.has(id)) };
  };
}
