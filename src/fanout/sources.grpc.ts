import { listReader } from "../contracts/lists.js";
import type { DropPage, TimelineEntry } from "../contracts/timelines.js";
import { createOldestFirst, type OldestFirst } from "../kernel/oldest-first.js";
import { type IdPage, readPages } from "../kernel/paging.js";
import { type Erased, withoutErasedOriginals } from "../state/index.js";
import { follows } from "../upstreams/follows.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";

export const DROPS_A_PAGE = 200;

/** Maximum number of authors whose drops a batch of edges reads at a time, and of calls for drops in the process. */
export const AUTHORS_AT_ONCE = 128;
/** A user with more recent calls than this has lower priority. */
const MANY_CALLS = 128;

export interface Sources {
  /** Reads a page of an author's followers, and of the readers of the lists with the author. */
  readFollowers(author: string, token: string): Promise<IdPage>;
  /** Reads the ids of the lists of some owners with a member. */
  findLists(member: string, owners: readonly string[]): Promise<readonly string[]>;
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

const LISTS_A_PAGE = 1_000;
const ENDED: IdPage = { ids: [], next: "" };

/** Both lists are read at once. Returns undefined for one that has ended. */
function positionsOf(token: string): readonly (string | undefined)[] {
  if (token === "") return ["", ""];
  return (JSON.parse(token) as string[]).map((position) => (position === "" ? undefined : position));
}

export function createSources(upstreams: Upstreams, erased: Pick<Erased, "among">, followersAPage: number): Sources {
  return {
    readFollowers: async (user, token) => {
      const [followers, lists] = positionsOf(token);
      const [page, listed] = await Promise.all([
        followers === undefined ? ENDED : upstreams.followers({ user, token: followers, size: followersAPage }),
        lists === undefined ? ENDED : upstreams.findLists({ member: user, token: lists, size: followersAPage }),
      ]);
      const ids = listed.ids.length === 0 ? page.ids : [...page.ids, ...listed.ids.map(listReader)];
      const next = page.next === "" && listed.next === "" ? "" : JSON.stringify([page.next, listed.next]);
      return { ids, next, total: page.total };
    },
    findLists: async (member, owners) => {
      const all: string[] = [];
      const read = (token: string) => upstreams.findLists({ member, owners, token, size: LISTS_A_PAGE });
      for await (const { ids } of readPages(read)) all.push(...ids);
      return all;
    },
    isFollowing: (user, author) => follows(upstreams, user, author),
    readAuthorDrops: async (author, below, reader) =>
      withoutErasedOriginals(erased, await upstreams.dropsByUser({ author, below, reader, limit: DROPS_A_PAGE })),
    calls: createOldestFirst(AUTHORS_AT_ONCE, MANY_CALLS),
  };
}
