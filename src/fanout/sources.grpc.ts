import type { DropPage, TimelineEntry } from "../contracts/timelines.js";
import { createOldestFirst, type OldestFirst } from "../kernel/oldest-first.js";
import type { IdPage } from "../kernel/paging.js";
import { type Erased, withoutErasedOriginals } from "../state/erased/erasures.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";

export const DROPS_A_PAGE = 200;
const FOLLOWING_A_PAGE = 1_000;

/**
 * A batch of edges reads drops of so many authors at once, and the process makes as many calls for drops of authors.
 */
export const AUTHORS_AT_ONCE = 128;
/** Whoever has taken so many lately comes after the others: most follow a few users at once. */
const MANY_CALLS = 128;

export interface Sources {
  readFollowers(author: string, token: string): Promise<IdPage>;
  readFollowing(user: string, token: string): Promise<IdPage>;
  /**
   * `below` undefined: the newest ones. `reader`: direct drops only where this user may see them, "": none, undefined:
   * all. Upstreams may ignore `reader`, and be slow to forget whose drops a repost repeats.
   */
  readAuthorDrops(author: string, below: TimelineEntry | undefined, reader: string | undefined): Promise<DropPage>;
  /** The calls of `readAuthorDrops`, by the user they are for. */
  readonly calls: OldestFirst;
}

export function createSources(upstreams: Upstreams, erased: Pick<Erased, "among">, followersAPage: number): Sources {
  return {
    readFollowers: (user, token) => upstreams.followers({ user, token, size: followersAPage }),
    readFollowing: (user, token) => upstreams.following({ user, token, size: FOLLOWING_A_PAGE }),
    readAuthorDrops: async (author, below, reader) =>
      withoutErasedOriginals(erased, await upstreams.dropsByUser({ author, below, reader, limit: DROPS_A_PAGE })),
    calls: createOldestFirst(AUTHORS_AT_ONCE, MANY_CALLS),
  };
}
