import { type UserServiceServer, UserServiceService } from "../gen/avion/users.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unary } from "../platform/grpc/unary.js";
import type { Bounded } from "./bounded.js";
import { type FollowDeps, setFollowing } from "./follow.js";
import { followMany } from "./follow-many.js";
import { getFollowCounts } from "./get-follow-counts.js";
import { getList } from "./get-list.js";
import { isFollowing } from "./is-following.js";
import { listFollowChanges } from "./list-follow-changes.js";
import type { ReadList } from "./lists.js";
import type { EdgeStore } from "./ports.js";
import { getProfile, listProfiles, type ProfileDeps, setProfile } from "./profiles.js";

/** What the service works with. */
export interface UsersServiceDeps extends FollowDeps, ProfileDeps {
  readonly readList: ReadList;
  readonly edges: EdgeStore;
  readonly bounded: Bounded;
  readonly observe: FollowDeps["observe"] & ProfileDeps["observe"];
}

/** The gRPC service of the follow graph and of profiles. */
export function createUsersService(deps: UsersServiceDeps, log: Logger): Service {
  const { readList } = deps;
  const implementation: UserServiceServer = {
    getFollowingList: unary("GetFollowingList", log, getList(deps, "following")),
    getFollowersList: unary("GetFollowersList", log, getList(deps, "followers")),
    listFollowChanges: unary("ListFollowChanges", log, listFollowChanges(deps)),
    follow: unary("Follow", log, setFollowing(deps, true)),
    unfollow: unary("Unfollow", log, setFollowing(deps, false)),
    followMany: unary("FollowMany", log, followMany(deps)),
    isFollowing: unary("IsFollowing", log, isFollowing(deps)),
    getFollowCounts: unary("GetFollowCounts", log, getFollowCounts(readList)),
    getProfile: unary("GetProfile", log, getProfile(deps)),
    setProfile: unary("SetProfile", log, setProfile(deps)),
    listProfiles: unary("ListProfiles", log, listProfiles(deps)),
  };
  return { name: "avion.UserService", definition: UserServiceService, implementation };
}
