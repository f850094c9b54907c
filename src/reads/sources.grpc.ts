import { type DropPage, entryOfDrop, MAX_FOLLOWING, NO_DROPS, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import { type Drop, Visibility } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import type { OldestFirst } from "../kernel/oldest-first.js";
import { type IdPage, readPages } from "../kernel/paging.js";
import { sharedNow } from "../kernel/time.js";
import { isReadable } from "../upstreams/drop-pages.js";
import { isUnimplemented, refusalOfUser, type Upstreams } from "../upstreams/upstreams.grpc.js";
import type { ListDrops } from "./walk-listed.js";

export interface AuthorBelow {
  readonly author: string;
  /** The position is exclusive, and undefined for the newest drop. */
  readonly position: TimelineEntry | undefined;
}

interface ReadLimits {
  /** "" is for nobody. */
  readonly reader: string;
  readonly count: number;
  readonly deadline: number;
  readonly tolerant?: boolean | undefined;
}

/** Deadlines are in ms since the epoch. */
export interface Sources {
  /** @throws AppError `invalid` where the users service answers for others, and refuses this id */
  following(user: string, deadline: number): Promise<readonly string[]>;
  /**
   * Reads a page of about `count` drops of each author, as `reader` sees them; `answered` takes them.
   * `tolerant`: who cannot be read has none.
   *
   * @throws AppError of the first author who cannot be read, `deadline` if not all can be asked in time
   */
  drops<Asked extends AuthorBelow>(
    authors: Iterable<Asked>,
    limits: ReadLimits,
    answered: (asked: Asked, page: DropPage) => void | Promise<void>,
  ): Promise<void>;
}

/**
 * Opens the upstreams for one piece of work of a user; its calls come before those of later ones. `tolerant`: drops of
 * erased authors may come while Redis, which knows these, is away.
 */
export type OpenSources = (user: string, of?: { readonly tolerant: boolean }) => Sources;

export const FOLLOWING_A_PAGE = 1_000;

export function createSources(
  upstreams: Pick<Upstreams, "following" | "openDropsByUser">,
  calls: OldestFirst,
): OpenSources {
  return (user) => {
    const place = calls.place(user);
    return {
      async following(user, deadline) {
        const all: string[] = [];
        const read = (token: string): Promise<IdPage> =>
          place
            .one(() => upstreams.following({ user, token, size: FOLLOWING_A_PAGE, deadline }))
            .catch((error: unknown) => {
              // A later page may be refused for its token.
              throw token === "" ? refusalOfUser(error) : error;
            });
        for await (const { ids } of readPages(read)) {
          for (const id of ids) all.push(id);
          if (all.length > MAX_FOLLOWING) throw new AppError("exhausted", "the user follows more than can be merged");
        }
        return all;
      },
      drops(authors, { reader, count, deadline, tolerant = false }, answered) {
        const read = upstreams.openDropsByUser();
        return place.each(authors, async (asked) => {
          const { author, position } = asked;
          try {
            if (Date.now() >= deadline) throw new AppError("deadline", "not every author could be read in time");
            await answered(asked, await read({ author, below: position, limit: count, reader }, deadline));
          } catch (error) {
            if (!tolerant) throw error;
            await answered(asked, NO_DROPS);
          }
        });
      },
    };
  };
}

/** Has own drops that changed in a range. The values are the entries of those that belong in local. */
export type ListedDrops = ReadonlyMap<string, TimelineEntry | undefined>;

/** Resolves to undefined where the upstream has no ListDrops. `since` in ms since the epoch. */
export type ReadListedDrops = (since: number) => Promise<ListedDrops | undefined>;

const LISTED_A_PAGE = 1_000;

export function createReadListedDrops(upstreams: Pick<Upstreams, "changedDrops" | "leaveOut">): ReadListedDrops {
  const list = createListDrops(upstreams);
  return async (since) => (await list({ since, until: 0 }))?.drops;
}

export function createListDrops(upstreams: Pick<Upstreams, "changedDrops" | "leaveOut">): ListDrops {
  return async (range, most = Number.POSITIVE_INFINITY) => {
    const drops = new Map<string, TimelineEntry | undefined>();
    const read = (page_token: string) => upstreams.changedDrops({ ...range, page_size: LISTED_A_PAGE, page_token });
    try {
      for await (const page of readPages(read)) {
        for (const drop of page.drops)
          if (isReadable(drop)) drops.set(drop.drop_id, shownInLocal(drop));
          else upstreams.leaveOut("ListDrops", drop.user_id);
        if (drops.size > most) return { drops, isWhole: false };
      }
    } catch (error) {
      if (isUnimplemented(error)) return undefined;
      throw error;
    }
    return { drops, isWhole: true };
  };
}

const shownInLocal = (drop: Drop): TimelineEntry | undefined =>
  drop.visibility === Visibility.PUBLIC &&
  !drop.deleted &&
  drop.repost_of === "" &&
  !isTooFarAhead(drop.created_at, sharedNow())
    ? entryOfDrop(drop)
    : undefined;
