import { belongsHome, type DropPage, entryOfDrop, type TimelineEntry } from "../contracts/timelines.js";
import { isTooFarAhead } from "../contracts/times.js";
import type { Drop } from "../gen/avion/posts.js";
import { sharedNow } from "../kernel/time.js";
import type { HomeBounds } from "../state/index.js";
import {
  audienceOf,
  FLOOR,
  type HomeAddition,
  type HomeRemoval,
  type SignedEntry,
  type TimelineWriter,
} from "../state/index.js";
import { DROPS_A_PAGE, type Sources } from "./sources.grpc.js";

/** Reads the drops of one author. */
export interface DropReads {
  /** Resolves to undefined if the upstream does not return the page. */
  first(): Promise<DropPage | undefined>;
  next(below: TimelineEntry): Promise<DropPage>;
}

export interface ReadFor {
  readonly author: string;
  /** User for whom the calls are made: they share a queue. */
  readonly user: string;
  readonly reader: string | undefined;
}

type ReadsDeps = Pick<Sources, "readAuthorDrops" | "calls">;

/** Opens reads of an author's drops. `begun` is called once the first page has its slot. */
export function dropReads(
  { readAuthorDrops, calls }: ReadsDeps,
  { author, user, reader }: ReadFor,
  begun?: () => void,
) {
  const queue = calls.queue(user);
  return {
    first: () =>
      queue.one(() => {
        begun?.();
        return readAuthorDrops(author, undefined, reader);
      }),
    next: (below: TimelineEntry) => queue.one(() => readAuthorDrops(author, below, reader)),
  };
}

/**
 * Maximum number of pages to give up on. If more do not arrive, the upstream is slow, and calls for single edges would
 * slow it down further.
 */
const FEW_PAGES = 8;

/**
 * Gives up on a few pages once none has arrived for `timeoutMs`: while some arrive, the others may be slow. Pages that
 * wait for a slot are not given up.
 */
export function readsWithTimeout(deps: ReadsDeps, timeoutMs: number) {
  let isOver = false;
  let waiting = 0;
  let missing = 0;
  let giveUp = (): void => undefined;
  const over = new Promise<undefined>((resolve) => {
    giveUp = () => {
      if (missing > FEW_PAGES || waiting > 0) return void timer.refresh();
      isOver = true;
      resolve(undefined);
    };
  });
  const timer = setTimeout(() => giveUp(), timeoutMs);
  const come = (page: DropPage): DropPage => {
    timer.refresh();
    return page;
  };
  return {
    open(request: ReadFor): DropReads {
      const begun = (): void => {
        waiting--;
        missing++;
        timer.refresh();
      };
      const { first, next } = dropReads(deps, request, begun);
      const firstPage = async (): Promise<DropPage | undefined> => {
        waiting++;
        const page = await first().then(come, () => undefined);
        missing--;
        return page;
      };
      return {
        first: async () => (isOver ? undefined : Promise.race([over, firstPage()])),
        next: async (below) => come(await next(below)),
      };
    },
    end: () => clearTimeout(timer),
  };
}

/** A home whose owner follows an author now, or does not any more. */
interface ChangedHome {
  readonly follower: string;
  readonly follows: boolean;
  /** Drops of this time and older are left alone, in ms since the epoch; 0 or less: all drops are changed. */
  readonly floor: number;
}

/** Returns no home for an unfollow whose home is empty. */
export function changedHome(
  { follower, follows }: Pick<ChangedHome, "follower" | "follows">,
  { floor = 0, oldest }: HomeBounds,
): ChangedHome[] {
  if (follows) return [{ follower, follows, floor }];
  return oldest === undefined ? [] : [{ follower, follows, floor: oldest - 1 }];
}

interface Source {
  readonly first: DropPage;
  readonly next: (below: TimelineEntry) => Promise<DropPage>;
  readonly maxPages: number;
}

/** Maximum number of pages of an author: very many direct drops to others may come before those that followers see. */
export const MAX_DROP_PAGES = 100;

/** Returns a number of pages that hold all drops that a timeline can take, and as many drops that it does not take. */
export const usualPages = (maxEntries: number): number =>
  Math.min(MAX_DROP_PAGES, 2 * (Math.ceil((maxEntries + 1) / DROPS_A_PAGE) + 1));

/**
 * Number of entries that are gathered before they are written. Together with the pages read at a time it bounds the
 * memory of a batch.
 */
const ENTRIES_A_WRITE = 20_000;

/** Adds drops to homes and removes them, in large writes. */
export class DropWrites {
  readonly #adding: WriteBuffer<HomeAddition>;
  readonly #removing: WriteBuffer<HomeRemoval>;

  constructor(
    { addToHomes, removeFromHomes }: TimelineWriter,
    private readonly maxEntries: number,
    yields = false,
  ) {
    this.#adding = new WriteBuffer(
      ({ audience, entries }) => audience.ids.length * entries.length,
      async (all) => void (await addToHomes(all, yields)),
    );
    this.#removing = new WriteBuffer(
      ({ audience, drops }) => audience.ids.length * drops.length,
      (all) => removeFromHomes(all, yields),
    );
  }

  /**
   * Applies an author's drops down to the lowest floor, page by page. One drop more than a timeline holds is added, so
   * that trimming raises the floor to the end of the list. Replies and reposts do not count, since homes may leave them
   * out. Returns the homes that would need more pages.
   */
  async apply(homes: readonly ChangedHome[], { first, next, maxPages }: Source): Promise<readonly ChangedHome[]> {
    let [page, open, added] = [first, homes, 0];
    for (let pages = 1; ; pages++) {
      const { drops, next: below } = page;
      const audience = audienceOf(usersOf(open, false));
      await this.#removing.push({ audience, drops: drops.map(({ drop_id }) => drop_id) });
      added += await this.#add(usersOf(open, true), drops, this.maxEntries + 1 - added);
      if (!below) return [];
      open = open.filter(
        ({ follows, floor }) => (below.score > floor || floor <= 0) && !(follows && added > this.maxEntries),
      );
      if (open.length === 0 || pages >= maxPages) return open;
      page = await next(below);
    }
  }

  /** Removes the floor of homes, so that their next reads rebuild them. */
  async leaveToRebuild(homes: readonly ChangedHome[]): Promise<void> {
    const audience = audienceOf(homes.map(({ follower }) => follower));
    await this.#removing.push({ audience, drops: [FLOOR] });
  }

  async flush(): Promise<void> {
    await this.#adding.flush();
    await this.#removing.flush();
  }

  /** Returns the number of drops, without replies to others and reposts, that all of these followers may see. */
  async #add(followers: readonly string[], page: readonly Drop[], atMost: number): Promise<number> {
    const now = sharedNow();
    const toAll: SignedEntry[] = [];
    for (const drop of page) {
      if (isTooFarAhead(drop.created_at, now)) continue;
      const entry = entryOfDrop(drop);
      const readers = followers.filter((follower) => belongsHome(drop, follower));
      if (readers.length === followers.length) toAll.push(entry);
      else await this.#adding.push({ audience: audienceOf(readers), entries: [entry] });
    }
    let counted = 0;
    const entries = toAll.filter(
      ({ by }) => counted < atMost && (by.parent !== undefined || by.original !== undefined || ++counted),
    );
    await this.#adding.push({ audience: audienceOf(followers), entries });
    return counted;
  }
}

const usersOf = (homes: readonly ChangedHome[], following: boolean): string[] =>
  homes.filter(({ follows }) => follows === following).map(({ follower }) => follower);

/** Gathers additions or removals, and makes them together. */
class WriteBuffer<T> {
  #writes: T[] = [];
  #entries = 0;

  constructor(
    private readonly entriesOf: (write: T) => number,
    private readonly send: (writes: readonly T[]) => Promise<void>,
  ) {}

  async push(write: T): Promise<void> {
    const entries = this.entriesOf(write);
    if (entries === 0) return;
    this.#writes.push(write);
    this.#entries += entries;
    if (this.#entries >= ENTRIES_A_WRITE) await this.flush();
  }

  async flush(): Promise<void> {
    const writes = this.#writes;
    this.#writes = [];
    this.#entries = 0;
    if (writes.length > 0) await this.send(writes);
  }
}
