import { compareEntries, type DropPage, NO_DROPS, type TimelineEntry } from "../contracts/timelines.js";
import { isTime, isTooFarAhead } from "../contracts/times.js";
import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import type { Drop, GetDropsByUserIDRequest, GetDropsByUserIDResponse } from "../gen/avion/posts.js";
import { idFault, RESERVED_DROP_ID } from "../kernel/ids.js";
import { sharedNow, wrongUnitOf } from "../kernel/time.js";
import { broken, refuseLong } from "./answers.js";

export const METHOD = "GetDropsByUserID";

export interface DropsRequest {
  readonly author: string;
  /** Exclusive position; undefined for the newest drop. An empty drop id is below all drops of its ms. */
  readonly below: TimelineEntry | undefined;
  readonly limit: number;
  /** User who reads; "": only what every follower sees; undefined: all drops, with recipients. */
  readonly reader?: string | undefined;
}

/** Position in the form that upstreams take. */
export type Below = Pick<GetDropsByUserIDRequest, "before" | "max_id">;

export const belowOf = (below: TimelineEntry | undefined): Below => ({
  before: below?.score ?? 0,
  max_id: below?.drop ?? "",
});

/**
 * Part of a page that was read. If no drop of a page has a position, it has no `next`, and `lastId` is the id of its
 * last drop.
 */
export interface Taken {
  readonly page?: DropPage;
  readonly leftOut: number;
  /** True if the upstream does not list the newest drop first. */
  readonly isUnordered?: boolean;
  readonly lastId?: string;
}

/**
 * Takes the readable drops of a page. Only an empty page is the end, or one that says so. Positions descend from page
 * to page, in any order of the upstream, so that no drop comes twice and every list ends. If a page of `asked` drops
 * has none below the position, the upstream ignores positions; if the page is shorter, the list of an upstream with
 * overlapping pages ends.
 *
 * Drops from too far ahead are kept, since the next page may begin below one of them: readers leave them out.
 *
 * @throws AppError `failed`
 */
export function takePage(
  { drops, end }: GetDropsByUserIDResponse,
  below: TimelineEntry | undefined,
  asked: number,
): Taken {
  refuseLong(METHOD, drops.length);
  if (drops.length === 0) return { page: NO_DROPS, leftOut: 0 };
  const now = sharedNow();
  let [previous, leftOut] = [below, 0];
  for (const drop of drops) {
    const entry = entryOf(drop);
    if (!isReadable(drop) || (previous && compareEntries(entry, previous) >= 0))
      return takeUneven({ drops, end }, below, asked);
    if (isTooFarAhead(drop.created_at, now)) leftOut++;
    previous = entry;
  }
  return { page: { drops, next: end ? undefined : previous }, leftOut };
}

const entryOf = ({ created_at, drop_id }: Drop): TimelineEntry => ({ score: created_at, drop: drop_id });

export function isReadable({ drop_id, created_at, recipients }: Drop): boolean {
  return (
    idFault(drop_id) === undefined &&
    drop_id !== RESERVED_DROP_ID &&
    isTime(created_at) &&
    wrongUnitOf(created_at) === undefined &&
    recipients.length <= MAX_RECIPIENTS
  );
}

/** Takes a page that has unreadable drops, another order, a drop twice, or drops that are not below the position. */
function takeUneven({ drops, end }: GetDropsByUserIDResponse, below: TimelineEntry | undefined, asked: number): Taken {
  const isBelow = (entry: TimelineEntry): boolean => below === undefined || compareEntries(entry, below) < 0;
  const readable = drops.filter((drop) => isReadable(drop));
  const taken = readable.filter((drop) => isBelow(entryOf(drop)));
  const now = sharedNow();
  const timely = taken.filter(({ created_at }) => !isTooFarAhead(created_at, now));
  const leftOut = drops.length - readable.length + (taken.length - timely.length);
  const kept = new Map<string, Drop>();
  for (const drop of taken.toSorted((a, b) => compareEntries(entryOf(b), entryOf(a)))) {
    // A drop listed with two times has the smaller one.
    kept.delete(drop.drop_id);
    kept.set(drop.drop_id, drop);
  }
  const { end: reached, isUnordered } = endOf(timely);
  // Positions of unreadable drops count only if no drop is readable: upstreams may refuse an unreadable id.
  const others = kept.size > 0 ? [...kept.values()].map(entryOf) : drops.flatMap(positionOf).filter(isBelow);
  const next = reached ?? lowestOf(others);
  const page = { drops: [...kept.values()], next: end ? undefined : next };
  if (next || end) return { page, leftOut, isUnordered };
  if (drops.some((drop) => positionOf(drop).length === 0)) return { leftOut, lastId: drops.at(-1)?.drop_id ?? "" };
  if (drops.length >= asked) throw broken(METHOD, "the page below a drop leads to itself");
  return { page: NO_DROPS, leftOut };
}

const lowestOf = (entries: readonly TimelineEntry[]): TimelineEntry | undefined =>
  entries.reduce<TimelineEntry | undefined>(
    (low, entry) => (low && compareEntries(low, entry) < 0 ? low : entry),
    undefined,
  );

/**
 * Minimum number of drops in ascending order that count as a reversed page. Fewer may be a pinned drop and those that
 * follow it.
 */
const LEAST_REVERSED = 10;

/**
 * Finds how far down a page is complete. A drop out of order, such as a pinned one, says nothing about the drops
 * between: the last drop of the page counts, from which the upstream itself continues. Drops of the page below it are
 * listed again.
 */
function endOf(drops: readonly Drop[]): { readonly end?: TimelineEntry | undefined; readonly isUnordered: boolean } {
  const firsts = new Map(drops.toReversed().map((drop) => [drop.drop_id, drop]));
  const entries = drops.filter((drop) => firsts.get(drop.drop_id) === drop).map(entryOf);
  const isSorted = (sign: 1 | -1): boolean =>
    entries.every(
      (entry, index) => index === 0 || sign * compareEntries(entry, entries[index - 1] as TimelineEntry) < 0,
    );
  if (isSorted(1)) return { end: entries.at(-1), isUnordered: false };
  return { end: entries.length >= LEAST_REVERSED && isSorted(-1) ? entries[0] : entries.at(-1), isUnordered: true };
}

/** Returns the position of an unreadable item; empty if its time is unusable. */
function positionOf({ created_at, drop_id }: Drop): TimelineEntry[] {
  if (created_at > Number.MAX_SAFE_INTEGER) return [{ score: Number.MAX_SAFE_INTEGER, drop: "" }];
  // Upstreams take the time 0 as no position.
  return isTime(created_at) && created_at > 0 ? [{ score: created_at, drop: drop_id }] : [];
}
