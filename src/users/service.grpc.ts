import { type UserServiceServer, UserServiceService } from "../gen/avion/users.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unary } from "../platform/grpc/unary.js";
import { type FollowDeps, followMany, setFollowing } from "./follow.js";
import { getProfile, listProfiles, type ProfileDeps, setProfile } from "./profiles.js";
import { getFollowCounts, getList, isFollowing, listFollowChanges, type ReadFollowsDeps } from "./read-follows.js";

export interface UsersServiceDeps extends FollowDeps, ProfileDeps, ReadFollowsDeps {
  readonly observe: FollowDeps["observe"] & ProfileDeps["observe"];
}

export function createUsersService(deps: UsersServiceDeps, log: Logger): Service {
  const implementation: UserServiceServer = {
    getFollowingList: unary("GetFollowingList", log, getList(deps, "following")),
    getFollowersList: unary("GetFollowersList", log, getList(deps, "followers")),
    listFollowChanges: unary("ListFollowChanges", log, listFollowChanges(deps)),
    follow: unary("Follow", log, setFollowing(deps, true)),
    unfollow: unary("Unfollow", log, setFollowing(deps, false)),
    followMany: unary("FollowMany", log, followMany(deps)),
    isFollowing: unary("IsFollowing", log, isFollowing(deps)),
    getFollowCounts: unary("GetFollowCounts", log, getFollowCounts(deps)),
    getProfile: unary("GetProfile", log, getProfile(deps)),
    setProfile: unary("SetProfile", log, setProfile(deps)),
    listProfiles: unary("ListProfiles", log, listProfiles(deps)),
  };
  return { name: "avion.UserService", definition: UserServiceService, implementation };
}
