import type { GetFollowCountsRequest, GetFollowCountsResponse } from "../gen/avion/users.js";
import { readUserId } from "./input.js";
import type { ReadList } from "./lists.js";

/** GetFollowCounts. @throws AppError `invalid` naming the field */
export function getFollowCounts(
  readList: ReadList,
): (request: GetFollowCountsRequest) => Promise<GetFollowCountsResponse> {
  return async ({ user_id }) => {
    const user = readUserId("user_id", user_id);
    const [following, followers] = await Promise.all([
      readList({ list: "following", user, after: "", limit: 0 }),
      readList({ list: "followers", user, after: "", limit: 0 }),
    ]);
    return { following: following.total, followers: followers.total };
  };
}
