import { chunked } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { readPages } from "../kernel/paging.js";
import { isUnimplemented, type Users } from "../platform/grpc/upstreams.js";
import type { FollowedAmong } from "./drops.js";

/** The limit holds for the ids of a request, and for those of a page. */
const MAX_ASKED = 1_000;

/** No user follows another where there is no UserService. */
export function createFollowedAmong(users: Users | undefined): FollowedAmong {
  if (users === undefined) return async () => new Set();
  let lacksMethod = false;
  const asked = async (follower: string, people: readonly string[]): Promise<ReadonlySet<string>> => {
    if (lacksMethod) return listed(users, follower, people);
    try {
      const answers = await Promise.all(chunked(people, MAX_ASKED).map((part) => users.isFollowing(follower, part)));
      const follows = answers.flat();
      return new Set(people.filter((_, index) => follows[index] === true));
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      lacksMethod = true;
      return listed(users, follower, people);
    }
  };
  return async (follower, people) => {
    try {
      return await asked(follower, people);
    } catch (error) {
      // NOT_FOUND would claim that the drop does not exist.
      const publicMessage = "viewer_id: the users they follow are not known";
      throw new AppError("unavailable", `${publicMessage}: ${oneLine(error)}`, { cause: error, publicMessage });
    }
  };
}

/** A UserService without IsFollowing is asked for lists. */
async function listed(users: Users, follower: string, people: readonly string[]): Promise<ReadonlySet<string>> {
  const wanted = new Set(people);
  const found = new Set<string>();
  for await (const { ids } of readPages((token) => users.following({ user: follower, size: MAX_ASKED, token }))) {
    for (const id of ids) if (wanted.has(id)) found.add(id);
    if (found.size === wanted.size) break;
  }
  return found;
}
