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
  /** Exclusive position; undefined for the newest drop. */
  readonly position: TimelineEntry | undefined;
}

interface ReadLimits {
  /** User who reads; "": only drops that every follower may see. */
  readonly reader: string;
  readonly count: number;
  readonly deadline: number;
  readonly tolerant?: boolean | undefined;
}

/** Upstreams, as one piece of work sees them. Deadlines are in ms since the epoch. */
export interface Sources {
  /** @throws AppError `invalid` if the users service answers other calls, and refuses this id */
  following(user: string, deadline: number): Promise<readonly string[]>;
  /**
   * Reads a page of about `count` drops of each author, as `reader` sees them, and passes it to `answered`. `tolerant`:
   * an author who cannot be read counts as one without drops.
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
 * Opens the upstreams for one piece of work of a user; its calls come before those of later pieces. `tolerant`: drops
 * of erased authors may be returned if Redis, which lists those authors, does not answer.
 */
export type OpenSources = (user: string, options?: { readonly tolerant: boolean }) => Sources;

export const FOLLOWING_A_PAGE = 1_000;

export function createSources(
  upstreams: Pick<Upstreams, "following" | "openDropsByUser">,
  calls: OldestFirst,
): OpenSources {
  return (user) => {
    const queue = calls.queue(user);
    return {
      async following(user, deadline) {
        const all: string[] = [];
        const read = (token: string): Promise<IdPage> =>
          queue
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
        return queue.each(authors, async (asked) => {
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

/** Own drops of this server that changed in a range. The values are the entries of those that belong in local. */
export type ListedDrops = ReadonlyMap<string, TimelineEntry | undefined>;

/**
 * Reads the drops changed since a time, in ms since the epoch. Resolves to undefined if the upstream has no ListDrops.
 */
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
