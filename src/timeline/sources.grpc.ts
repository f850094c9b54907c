import { AppError } from "../kernel/errors.js";
import type { OldestFirst } from "../kernel/oldest-first.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";
import type { OpenSources } from "./ports.js";

const FOLLOWING_A_PAGE = 1_000;
/** A list longer than this is not a person's; reading it would not end in time. */
const MAX_FOLLOWING = 100_000;

/** The upstreams as reads use them; `calls` is the process's bound on their calls. */
export function createSources(upstreams: Upstreams, calls: OldestFirst): OpenSources {
  return () => {
    const place = calls.place();
    return {
      async following(user, deadline) {
        const ids: string[] = [];
        let token = "";
        do {
          const asked = { user, token, size: FOLLOWING_A_PAGE, deadline };
          const page = await calls.run(place, () => upstreams.following(asked));
          for (const id of page.ids) ids.push(id);
          if (ids.length > MAX_FOLLOWING) throw new AppError("exhausted", "the user follows more than can be merged");
          token = page.next;
        } while (token !== "");
        return ids;
      },
      drops: (author, below, { count, deadline }) =>
        calls.run(place, () =>
          upstreams.dropsByUser(
            { user_id: author, limit: count, max_id: below?.drop ?? "", before: below?.score ?? 0 },
            deadline,
          ),
        ),
    };
  };
}
