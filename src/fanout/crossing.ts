import { listOfReader } from "../contracts/lists.js";
import { belongsHome, type DropPage } from "../contracts/timelines.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { mapLimited } from "../kernel/concurrency.js";
import { oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { type Lease, underLease } from "../kernel/lease.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { readPages } from "../kernel/paging.js";
import { SECOND } from "../kernel/time.js";
import type { HomeBounds } from "../state/index.js";
import { audienceOf, currentOf, type Due, isSettled, PULL_GRACE_MS, type PullState } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";
import { changedHome, DropWrites, dropReads, MAX_DROP_PAGES } from "./graph-drops.js";
import { MAX_PAGES } from "./plan.js";

type CrossingDeps = FanoutDeps & {
  /**
   * Resolves to the time at which the oldest event or job that is not applied yet was admitted, in ms since the epoch.
   */
  readonly readBacklogStart: () => Promise<number>;
};

const EVERY_MS = SECOND;

/** Completes changes between pushed, tiered and pulled, in one process at a time. After a crash a step begins anew. */
export function startCrossings(deps: CrossingDeps & { readonly lease: Lease; readonly log: Logger }): Loop {
  const { authorStates, lease, log } = deps;
  return startLoop({
    work: async (stopping) => {
      const due = await authorStates.due();
      if (due.length === 0) return;
      // Very many authors may wait for the same backlog after a loss.
      let start: Promise<number> | undefined;
      const readBacklogStart = () => (start ??= deps.readBacklogStart());
      const cross = createCross({ ...deps, readBacklogStart });
      await underLease(lease, async () => {
        for (const author of due) {
          if (stopping.aborted) return;
          await cross(author, stopping).catch((error: unknown) =>
            log.warn(
              { error: oneLine(error), state: author.state },
              "an author could not be pushed, tiered or pulled yet",
            ),
          );
        }
      });
    },
    everyMs: EVERY_MS,
    failed: (error) => log.warn({ error: oneLine(error) }, "the registry of pulled authors could not be read"),
    closeMs: SECOND,
  });
}

/**
 * Returns a function that makes the change of an author's state for all followers. Every step may be repeated.
 *
 * - `promoting`, `tiering`: an old timeline of the author is removed. A read of a pulled author rebuilds it, with the
 * drops that were only pushed. Then the author is added to the followers' sets of pulled authors, and unknown sets of
 * listeners are filled, so that the first drop need not wait for that.
 * - `demoting`, `lowering`: the author's drops are added to homes, as after a follow. A rebuild of a home reads all
 * followed authors.
 * - `leaving`: the author is removed from the sets. Until then a demoted author's timeline stays merged.
 *
 * Until the end of `tiering` and `leaving` pages may show drops that homes do not have yet. These two steps begin once
 * homes have all drops that were planned in an earlier state.
 *
 * A follower who unfollows while a page is written is recorded as an unfollower before the drops are removed from the
 * home, so unfollowers are read after the write. An unfollow that was interrupted may not have removed them, and its
 * user is in no later page: a step ends with all users who have unfollowed since the state began.
 */
export function createCross(deps: CrossingDeps) {
  const { authors, listeners, authorStates, readFollowers, readBacklogStart } = deps;
  const join = async (author: string): Promise<Step> => {
    await authors.forget(author);
    return {
      apply: (users) => authors.addToPulls(new Map([[author, users]])),
      undo: (users) => authors.removeFromPulls(new Map([[author, users]])),
    };
  };
  const fill = async (author: string): Promise<Step> => {
    const page = openDrops(deps, author);
    const change = (follows: boolean) => (users: readonly string[]) =>
      changeHomes(deps, page, { author, users, follows });
    return { apply: change(true), undo: change(false), changesHomes: true };
  };
  const steps: Readonly<Record<Exclude<PullState, "pulled" | "tiered">, (author: string) => Promise<Step>>> = {
    promoting: join,
    lowering: fill,
    tiering: join,
    demoting: fill,
    leaving: async (author) => ({ apply: (users) => authors.removeFromPulls(new Map([[author, users]])) }),
  };
  return async (due: Due, stopping: AbortSignal): Promise<void> => {
    const { author, state, since } = due;
    if (isSettled(state)) return;
    if ((await deps.erased.among([author])).has(author)) return authorStates.forget(author);
    const isEnding = state === "tiering" || state === "leaving";
    if (isEnding && (await readBacklogStart()) < since + PULL_GRACE_MS) return;
    const step = await steps[state](author);
    for await (const { ids } of readPages((token) => readFollowers(author, token), MAX_PAGES)) {
      if (stopping.aborted || (await currentOf(authorStates)).get(author)?.since !== since) return;
      const { ids: users, readers } = audienceOf(ids);
      await toFollowers(deps, { author, users: users.filter((id) => id !== author) }, step);
      // The members of a list are known when it is read: it has no set of pulled authors.
      if (step.changesHomes) await mapLimited(readers, LISTS_AT_ONCE, (reader) => deps.renewList(listOf(reader)));
      await failpoint("crossing", state);
    }
    await toUnfollowers(deps, due, step);
    if (steps[state] === join) await listeners.visit(author, async () => undefined);
    await authorStates.proceed(due);
  };
}

const LISTS_AT_ONCE = 128;
const listOf = (reader: string): string => listOfReader(reader) as string;

interface Step {
  /** True: the drops go into homes. Lists are rebuilt. */
  readonly changesHomes?: true;
  readonly apply: (users: readonly string[]) => Promise<void>;
  /** Takes the step back for those who have unfollowed. Undefined if there is nothing to take back. */
  readonly undo?: (users: readonly string[]) => Promise<void>;
}

interface AuthorFollowers {
  readonly author: string;
  readonly users: readonly string[];
}

async function toFollowers(deps: CrossingDeps, { author, users }: AuthorFollowers, step: Step): Promise<void> {
  if (!step.undo) return step.apply(users);
  for (let open = users; open.length > 0; ) {
    const gone = new Set(await deps.fences.unfollowedAmong(author, open));
    const following = open.filter((user) => !gone.has(user));
    await step.apply(following);
    open = await undoFor(deps, { author, users: following }, step.undo);
  }
}

async function toUnfollowers(deps: CrossingDeps, { author, since }: Due, step: Step): Promise<void> {
  if (!step.undo) return;
  for await (const users of deps.fences.recentUnfollowers(author, since - CLOCK_SKEW_MS))
    await toFollowers(deps, { author, users: await undoFor(deps, { author, users }, step.undo) }, step);
}

/** Takes the step back for those who have unfollowed. Returns those of them who follow again by then. */
async function undoFor(
  { fences }: CrossingDeps,
  { author, users }: AuthorFollowers,
  undo: (users: readonly string[]) => Promise<void>,
): Promise<string[]> {
  const gone = await fences.unfollowedAmong(author, users);
  await undo(gone);
  const still = new Set(await fences.unfollowedAmong(author, gone));
  return gone.filter((user) => !still.has(user));
}

/** Reads a page by its index, which is at most one more than that of the last page that was read. */
type ReadPage = (index: number) => Promise<DropPage>;

/** No user has this id. */
const NO_READER = "";

/**
 * Reads an author's drops page by page, newest first, without direct ones, which homes have in every state of their
 * author. A page is read once for all followers: later drops are pushed to homes.
 */
function openDrops(deps: CrossingDeps, author: string): ReadPage {
  const { first, next: readNext } = dropReads(deps, { author, user: author, reader: NO_READER });
  const pages: DropPage[] = [];
  return async (index) => {
    if (index === pages.length) {
      const below = pages.at(-1)?.next;
      const { drops, next } = await (below ? readNext(below) : first());
      pages.push({ drops: drops.filter((drop) => belongsHome(drop, NO_READER)), next });
    }
    return pages[index] as DropPage;
  };
}

async function changeHomes(
  { writer, fences, maxEntries }: CrossingDeps,
  page: ReadPage,
  { author, users, follows }: AuthorFollowers & { readonly follows: boolean },
): Promise<void> {
  if (users.length === 0) return;
  const bounds = await writer.interruptRebuilds(users);
  const homes = users.flatMap((follower, index) => changedHome({ follower, follows }, bounds[index] as HomeBounds));
  const writes = new DropWrites(writer, maxEntries, true);
  let pageIndex = 0;
  const open = await writes.apply(homes, {
    first: await page(0),
    next: () => page(++pageIndex),
    maxPages: MAX_DROP_PAGES,
  });
  await writes.leaveToRebuild(open);
  await writes.flush();
  await fences.removeDeleted(new Map([[author, users]]));
}
