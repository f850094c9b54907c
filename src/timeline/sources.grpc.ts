import type { TimelineEntry } from "../contracts/timelines.js";
import type { Drop } from "../gen/avion/posts.js";
import type { OldestFirst } from "../kernel/concurrency.js";
import { AppError, codeOf, invalid, oneLine } from "../kernel/errors.js";
import { type IdPage, readPages } from "../kernel/paging.js";
import { isInvalidArgument, type Upstreams } from "../platform/grpc/upstreams.js";

/** Deadlines are in ms since the epoch. */
export interface Sources {
  /** @throws AppError `invalid` where the users service answers for others, and refuses this id */
  following(user: string, deadline: number): Promise<readonly string[]>;
  /** An author's drops older than a position, newest first. */
  drops(
    author: string,
    below: TimelineEntry | undefined,
    limits: { readonly count: number; readonly deadline: number },
  ): Promise<readonly Drop[]>;
}

/** Opens the upstreams for one piece of work, whose calls come before those of later ones. */
export type OpenSources = () => Sources;

const FOLLOWING_A_PAGE = 1_000;
const MAX_FOLLOWING = 100_000;

export function createSources(upstreams: Upstreams, calls: OldestFirst): OpenSources {
  return () => {
    const place = calls.place();
    return {
      async following(user, deadline) {
        const all: string[] = [];
        const read = (token: string): Promise<IdPage> =>
          calls
            .run(place, () => upstreams.following({ user, token, size: FOLLOWING_A_PAGE, deadline }))
            .catch((error: unknown) => {
              throw token === "" ? refusalOr(error) : error;
            });
        for await (const { ids } of readPages(read)) {
          for (const id of ids) all.push(id);
          if (all.length > MAX_FOLLOWING) throw new AppError("exhausted", "the user follows more than can be merged");
        }
        return all;
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

/** Of the first page: a later one may be refused for its token. */
function refusalOr(error: unknown): unknown {
  return codeOf(error) === "failed" && isInvalidArgument(error) ? invalid("user_id", oneLine(error)) : error;
}
