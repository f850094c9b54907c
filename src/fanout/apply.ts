import type { FanoutCompleted } from "../contracts/fanout.js";
import { CLOCK_SKEW_MS } from "../contracts/times.js";
import { grouped } from "../kernel/concurrency.js";
import { failpoint } from "../kernel/failpoints.js";
import { createBatch } from "../kernel/sharing.js";
import { sharedNow } from "../kernel/time.js";
import type { FanoutSize } from "../state/index.js";
import {
  audienceOf,
  generationSince,
  type HomeAddition,
  type HomeRemoval,
  usersOf,
  writeUnlessDeleted,
} from "../state/index.js";
import { type AudienceChange, type Change, entryOf, isAnnounced, isDeletion, mayNotify } from "./change.js";
import type { FanoutDeps } from "./deps.js";
import { notifyAgainOfDeletions, notifyAudiences, notifyOfDeletions } from "./notify.js";

/** Maximum number of entries of a slice. Redis writes them in about 0.2 s. */
const ENTRIES_A_SLICE = 100_000;

/**
 * Maximum number of deletions in a batch. If each has the maximum number of cached followers, Redis takes about 0.3 s.
 */
const DELETIONS_AT_ONCE = 64;

/** Steps of a fan-out. Repeating one changes nothing more. */
export interface Apply {
  chunks(parts: readonly AudienceChange[]): Promise<void>;
  /** Notifies the given users, and the author's followers who listen. Homes are not written. */
  toListeners(part: AudienceChange): Promise<void>;
  toRecentUnfollowers(change: Change): Promise<void>;
  /** Applies changes whose audience is known. Publications among them were never attempted before. */
  first(parts: readonly AudienceChange[]): Promise<void>;
  /**
   * Applies a change to its whole audience. `nonFollowers`: only these users may have unfollowed since its admission.
   */
  whole(part: AudienceChange, nonFollowers?: readonly string[]): Promise<void>;
  complete(done: readonly (Omit<AudienceChange, "audience"> & { readonly size: FanoutSize })[]): Promise<void>;
}

export type WithApply = FanoutDeps & { readonly apply: Apply };

/**
 * A publication is written, then its tombstone and the author's generation are read, then its audience is notified,
 * then the tombstones of the announced drops are read again. A deletion, whose tombstone is set by then, notifies those
 * who have the drop before it removes the drop: a repeated deletion notifies the remaining ones under the same message
 * ids.
 *
 * **A deletion and an unfollow** may each miss a home that the other changes: an unfollow removes the author's drops,
 * and a deleted drop is in no list of them. Therefore:
 *
 * - an edge that changes records the unfollower, then renews the generation, then removes the author's deleted drops
 * from the home (`graph.ts`);
 * - a deletion sets the tombstone and records the drop under its author, then reads the generation, then the followers
 * of that generation and the recent unfollowers.
 *
 * A user in neither list was recorded after the recent unfollowers were read, or renewed the generation after it was
 * read. In both cases the unfollow removes the author's deleted drops later, this one included.
 *
 * **A repeated publication** may have been written to a list of followers that it does not get a second time. The drop
 * is removed from the homes of those recorded as unfollowers since its admission. A publication that is handled for the
 * first time was written to no other list.
 */
export function createApply(deps: FanoutDeps): Apply {
  const { writer, authors, fences, listeners, publishing, complete, yields } = deps;
  const { add, removeUnfollowed } = createAdd(deps);
  const remove = async (parts: readonly AudienceChange[]): Promise<void> => {
    if (parts.length === 0) return;
    await notifyAudiences(deps, parts);
    await writer.removeFromHomes(removals(parts), yields);
  };
  const removeFromUnfollowers = async (deletions: readonly AudienceChange[]): Promise<void> => {
    for await (const users of fences.recentUnfollowers(deletions[0]?.change.user_id as string, 0)) {
      const audience = audienceOf(users);
      // Recent unfollowers do not pull the author any more: those whose homes have the drop are notified.
      await remove(deletions.map((part) => ({ ...part, change: { ...part.change, pulled: false }, audience })));
    }
  };
  const completeWhole = (parts: readonly AudienceChange[]): Promise<void> =>
    steps.complete(parts.map((part) => ({ change: part.change, trace: part.trace, size: sizeOf(part) })));
  // Deletions that arrive while others are applied share the reads of homes.
  const removeFirst = createBatch<AudienceChange>(DELETIONS_AT_ONCE, async (deletions) => {
    await remove(deletions);
    await Promise.all([...byAuthor(deletions).values()].map(removeFromUnfollowers));
    await completeWhole(deletions);
  });
  const steps: Apply = {
    chunks: async (parts) => {
      await add(parts.filter(({ change }) => change.action === "add"));
      await remove(parts.filter(isDeletion));
    },
    toListeners: async (part) => {
      if (!mayNotify(part.change)) return;
      const notify = async (parts: readonly AudienceChange[]): Promise<void> => {
        await (isDeletion(part) ? notifyAudiences(deps, parts) : add(parts));
      };
      await notify([part]);
      await listeners.visit(part.change.user_id, (users) => notify([{ ...part, audience: audienceOf(users) }]));
    },
    toRecentUnfollowers: async (change) => {
      if (change.action === "remove") return removeFromUnfollowers([{ change, audience: EMPTY_AUDIENCE }]);
      const since = change.admitted_at - CLOCK_SKEW_MS;
      // Every unfollow renews the generation. If that is older, nobody has unfollowed since, and no look-up is needed.
      if (generationSince(change.generation) < since) return;
      for await (const users of fences.recentUnfollowers(change.user_id, since))
        await removeUnfollowed(change, await fences.unfollowedAmong(change.user_id, users));
    },
    first: async (parts) => {
      for (const slice of slices(parts.filter((part) => !isDeletion(part)))) {
        await add(slice);
        await completeWhole(slice);
      }
      await Promise.all(parts.filter(isDeletion).map(removeFirst));
    },
    whole: async (part, nonFollowers) => {
      const { change } = part;
      await steps.chunks([part]);
      if (nonFollowers === undefined) await steps.toRecentUnfollowers(change);
      else await removeUnfollowed(change, await fences.unfollowedAmong(change.user_id, nonFollowers));
      await steps.complete([{ ...part, size: sizeOf(part) }]);
    },
    complete: async (done) => {
      const tiered = done.filter(({ size }) => size.tiers !== undefined);
      await Promise.all(tiered.map(({ change }) => authors.remove(change.user_id, change.drop_id)));
      const announced = done.flatMap(({ change }) => (isAnnounced(change) ? change.drop_id : []));
      await Promise.all([
        complete(done.map(({ change, trace, size }) => ({ completed: completedOf(change, size), trace }))),
        publishing.end(announced),
      ]);
    },
  };
  return steps;
}

function createAdd(deps: FanoutDeps) {
  const { writer, fences, yields } = deps;
  return { add, removeUnfollowed };

  async function add(all: readonly AudienceChange[]): Promise<void> {
    const start = fences.retentionStart();
    const parts = all.filter(({ change }) => change.created_at >= start);
    if (parts.length === 0) return;
    const drops = parts.map(({ change }) => change.drop_id);
    let generations: ReadonlyMap<string, string> = new Map();
    let isTaken = false;
    const deleted = await writeUnlessDeleted(drops, {
      write: async () => {
        await failpoint("write", ...drops);
        const answered = parts.flatMap(({ change }) => change.repost_author || change.reply_to_author || []);
        if (answered.length > 0) await writer.rememberReposted([...new Set(answered)]);
        isTaken = await writer.addToHomes(additions(parts), yields);
        await failpoint("written", ...drops);
      },
      tombstonedAmong: async () => {
        const authors = [...byAuthor(parts).keys()];
        const looks = [fences.tombstonedAmong(drops), fences.generations(authors)] as const;
        const [tombstoned, now] = await Promise.all(looks);
        generations = now;
        await failpoint("checked", ...drops);
        return tombstoned;
      },
      remove: (dead) =>
        writer.removeFromHomesWithNote(removals(parts.filter(({ change }) => dead.includes(change.drop_id)))),
    });
    const audiences: AudienceChange[] = [];
    for (const part of deleted?.size ? parts.filter(({ change }) => !deleted.has(change.drop_id)) : parts) {
      const { user_id, generation } = part.change;
      audiences.push(generations.get(user_id) === generation ? part : await withoutUnfollowed(part));
    }
    // An earlier attempt may have announced these drops after their deletions were announced.
    await notifyOfDeletions(deps, deleted?.size ? parts.filter(({ change }) => deleted.has(change.drop_id)) : []);
    await notifyAgainOfDeletions(deps, await notifyAudiences(deps, audiences, isTaken));
    await failpoint("notified", ...drops);
  }

  /** Removes the drop from the homes of unfollowers. A user who follows again meanwhile keeps the drop. */
  async function removeUnfollowed(change: Change, unfollowed: readonly string[]): Promise<void> {
    if (unfollowed.length === 0) return;
    await writer.removeFromHomesWithNote([{ audience: audienceOf(unfollowed), drops: [change.drop_id] }]);
    const still = new Set(await fences.unfollowedAmong(change.user_id, unfollowed));
    const back = unfollowed.filter((user) => !still.has(user));
    if (back.length > 0) await add([{ change, audience: audienceOf(back) }]);
  }

  /** Leaves out users who unfollowed after the list of followers was read, and removes the drop from their homes. */
  async function withoutUnfollowed(part: AudienceChange): Promise<AudienceChange> {
    const { change, audience } = part;
    const gone = new Set(await fences.unfollowedAmong(change.user_id, audience.ids));
    await removeUnfollowed(change, [...gone]);
    return gone.size === 0 ? part : { ...part, audience: audienceOf(usersOf(audience).filter((id) => !gone.has(id))) };
  }
}

const EMPTY_AUDIENCE = audienceOf([]);
const additions = (parts: readonly AudienceChange[]): HomeAddition[] =>
  parts.flatMap(({ audience, change }) => (change.pulled ? [] : { audience, entries: [entryOf(change)] }));
const removals = (parts: readonly AudienceChange[]): HomeRemoval[] =>
  parts.map(({ audience, change }) => ({ audience, drops: [change.drop_id] }));
const sizeOf = ({ audience }: AudienceChange): FanoutSize => ({ recipients: audience.ids.length, chunks: 1 });

const byAuthor = (parts: readonly AudienceChange[]): Map<string, AudienceChange[]> =>
  grouped(parts, ({ change }) => change.user_id);

/** Divides a large batch, so that it is completed slice by slice. */
function* slices(parts: readonly AudienceChange[]): Generator<readonly AudienceChange[]> {
  let slice: AudienceChange[] = [];
  let entries = 0;
  for (const part of parts) {
    slice.push(part);
    entries += part.audience.ids.length;
    if (entries < ENTRIES_A_SLICE) continue;
    yield slice;
    slice = [];
    entries = 0;
  }
  if (slice.length > 0) yield slice;
}

function completedOf(change: Change, { recipients, chunks, tiers }: FanoutSize): FanoutCompleted {
  const { event, drop_id, user_id, created_at, admitted_at } = change;
  const landed_at = sharedNow();
  const lag_ms = Math.max(0, landed_at - created_at);
  const completed = { event, drop_id, user_id, recipients, chunks, created_at, admitted_at, landed_at, lag_ms };
  return tiers ? { ...completed, tiers } : completed;
}
