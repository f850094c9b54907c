import { readPages } from "../kernel/paging.js";
import { isUnimplemented } from "./call.grpc.js";
import type { Upstreams } from "./upstreams.grpc.js";

const FOLLOWING_A_PAGE = 1_000;

/** Resolves to true if a user follows another. Only a users service without `IsFollowing` is asked for the whole list. */
export async function follows(
  { isFollowing, following }: Pick<Upstreams, "isFollowing" | "following">,
  user: string,
  other: string,
): Promise<boolean> {
  try {
    const [answer] = await isFollowing(user, [other]);
    if (answer !== undefined) return answer;
  } catch (error) {
    if (!isUnimplemented(error)) throw error;
  }
  const read = (token: string) => following({ user, size: FOLLOWING_A_PAGE, token });
  for await (const { ids } of readPages(read)) if (ids.includes(other)) return true;
  return false;
}
