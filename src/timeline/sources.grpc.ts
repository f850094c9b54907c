import { AppError } from "../kernel/errors.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";
import type { Sources } from "./ports.js";

const FOLLOWING_A_PAGE = 1_000;
/** A list longer than this is not a person's; reading it would not end in time. */
const MAX_FOLLOWING = 100_000;

/** The upstreams as reads use them. */
export function createSources(upstreams: Upstreams): Sources {
  return {
    async following(user, deadline) {
      const ids: string[] = [];
      let token = "";
      do {
        const page = await upstreams.following({ user, token, size: FOLLOWING_A_PAGE, deadline });
        ids.push(...page.ids);
        if (ids.length > MAX_FOLLOWING) throw new AppError("exhausted", "the user follows more than can be merged");
        token = page.next;
      } while (token !== "");
      return ids;
    },
    drops: (author, below, { count, deadline }) =>
      upstreams.dropsByUser(
        { user_id: author, limit: count, max_id: below?.drop ?? "", before: below?.score ?? 0 },
        deadline,
      ),
  };
}
