import { UserServiceService } from "../gen/avion/users.js";
import type { Logger } from "../kernel/logger.js";
import type { Service } from "../platform/grpc/serve.js";
import { unaryService } from "../platform/grpc/unary.js";
import { changeFollows, type FollowsDeps, readFollows } from "./follows.js";
import { type ProfileDeps, profiles } from "./profiles.js";

export type UsersServiceDeps = FollowsDeps & ProfileDeps;

export const createUsersService = (deps: UsersServiceDeps, log: Logger): Service =>
  unaryService(UserServiceService, { ...changeFollows(deps), ...readFollows(deps), ...profiles(deps) }, log);
