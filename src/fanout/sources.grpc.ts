import type { DropPage, TimelineEntry } from "../contracts/timelines.js";
import { createOldestFirst, type OldestFirst } from "../kernel/oldest-first.js";
import type { IdPage } from "../kernel/paging.js";
import { type Erased, withoutErasedOriginals } from "../state/index.js";
import { follows } from "../upstreams/follows.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";

export const DROPS_A_PAGE = 200;

/** Maximum number of authors whose drops a batch of edges reads at a time, and of calls for drops in the process. */
export const AUTHORS_AT_ONCE = 128;
/** A user with more recent calls than this has lower priority. */
const MANY_CALLS = 128;

export interface Sources {
  readFollowers(author: string, token: string): Promise<IdPage>;
  isFollowing(user: string, author: string): Promise<boolean>;
  /**
   * Reads a page of an author's drops below a position, from the newest if `below` is undefined. `reader`: of direct
   * drops, those that this user may see; "": no direct drops; undefined: all. Upstreams may ignore `reader`, and be
   * slow to forget whose drops a repost repeats.
   */
  readAuthorDrops(author: string, below: TimelineEntry | undefined, reader: string | undefined): Promise<DropPage>;
  /** Queue of the calls of `readAuthorDrops`, by the user they are for. */
  readonly calls: OldestFirst;
}

export function createSources(upstreams: Upstreams, erased: Pick<Erased, "among">, followersAPage: number): Sources {
  return {
    readFollowers: (user, token) => upstreams.followers({ user, token, size: followersAPage }),
    isFollowing: (user, author) => follows(upstreams, user, author),
    readAuthorDrops: async (author, below, reader) =>
      withoutErasedOriginals(erased, await upstreams.dropsByUser({ author, below, reader, limit: DROPS_A_PAGE })),
    calls: createOldestFirst(AUTHORS_AT_ONCE, MANY_CALLS),
  };
}
