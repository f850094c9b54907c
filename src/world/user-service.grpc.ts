import type { UserServiceServer } from "../gen/avion/users.js";
import { idFault } from "../kernel/ids.js";
import type { Faults } from "./faults.js";
import { unary } from "./unary.grpc.js";
import type { WorldReads } from "./world.js";
import { invalid } from "./world-error.js";

export interface UserServiceDeps {
  readonly world: Pick<WorldReads, "followersOf" | "followingOf" | "listFollowChanges">;
  readonly faults?: Faults;
}

interface ListRequest {
  readonly user_id: string;
  readonly page_size: number;
  readonly page_token: string;
}

const userOf = (request: ListRequest): string => request.user_id;

/** The follow graph over gRPC. */
export function createUserService({ world, faults }: UserServiceDeps): UserServiceServer {
  const service = { service: "users", faults } as const;
  return {
    getFollowingList: unary({
      ...service,
      method: "GetFollowingList",
      userOf,
      answer: (request: ListRequest) => presentIds(world.followingOf(readUser(request), request)),
    }),
    getFollowersList: unary({
      ...service,
      method: "GetFollowersList",
      userOf,
      answer: (request: ListRequest) => presentIds(world.followersOf(readUser(request), request)),
    }),
    listFollowChanges: unary({
      ...service,
      method: "ListFollowChanges",
      answer: (request) => {
        const page = world.listFollowChanges(request);
        return { changes: [...page.items], next_page_token: page.next_page_token };
      },
    }),
  };
}

function readUser({ user_id }: ListRequest): string {
  const fault = idFault(user_id);
  if (fault !== undefined) throw invalid("user_id", fault);
  return user_id;
}

function presentIds(page: ReturnType<WorldReads["followersOf"]>) {
  return { user_ids: [...page.items], next_page_token: page.next_page_token, total_count: page.total_count };
}
