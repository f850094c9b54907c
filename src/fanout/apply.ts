import type { FanoutCompleted, FanoutJob } from "../contracts/fanout.js";
import { type Fences, generationSince, writeUnlessDeleted } from "../contracts/fences.js";
import { CLOCK_SKEW_MS, NOTIFY_WINDOW_MS } from "../contracts/times.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Complete, Notify } from "./publish.nats.js";
import { type Audience, audienceOf, type FanoutSize, type TimelineWriter } from "./store.redis.js";

/** A publication or a deletion, as it stands in every chunk job. */
export type Change = Omit<FanoutJob, "user_ids">;

interface ApplyDeps {
  readonly writer: TimelineWriter;
  readonly fences: Fences;
  readonly notify: Notify;
  readonly complete: Complete;
}

/** The steps of a fan-out. Doing one of them again changes nothing more. */
export interface Apply {
  chunk(change: Change, audience: Audience): Promise<void>;
  toRecentUnfollowers(change: Change): Promise<void>;
  /** Applies a change to its whole audience. `nonFollowers`: the only ones who may have unfollowed since it was admitted. */
  whole(change: Change, audience: Audience, nonFollowers?: readonly string[]): Promise<void>;
  complete(change: Change, size: FanoutSize): Promise<void>;
}

/**
 * A publication is written, then its tombstone and the author's generation are read, then its audience is notified. A
 * deletion, whose tombstone is set by then, notifies those who have the drop before it removes it: handled again, it
 * notifies the remaining ones under the same message ids.
 *
 * **A deletion and an unfollow** may each miss a home that the other changes: an unfollow removes the author's drops,
 * of which a deleted one is none. Therefore:
 *
 * - an edge that changes records the unfollower, then renews the generation, then removes all tombstoned drops from
 *   the home (`graph.ts`);
 * - a deletion sets the tombstone, then reads the generation, then the followers of that generation and the recent
 *   unfollowers.
 *
 * A user in neither list was recorded after the recent unfollowers were read, or renewed the generation after it was
 * read: the look for tombstoned drops is later still, and finds the tombstone.
 *
 * **A publication** that is handled again may have been written by a list of followers that it does not get a second
 * time. It is removed from the homes of those recorded as unfollowers since it was admitted.
 */
export function createApply({ writer, fences, notify, complete }: ApplyDeps): Apply {
  const steps: Apply = {
    chunk: async (change, audience) => {
      if (change.action === "add") return add(change, audience);
      await tell(change, audience.ids, (users) => writer.holdersAmong(users, change.drop_id));
      await writer.removeHome(audience, [change.drop_id]);
    },
    toRecentUnfollowers: async (change) => {
      const deletes = change.action === "remove";
      const since = deletes ? 0 : change.admitted_at - CLOCK_SKEW_MS;
      // Every unfollow renews the generation: nobody has unfollowed since an older one, which costs no look-up to know.
      if (generationSince(change.generation) < since) return;
      for await (const users of fences.recentUnfollowers(change.user_id, since)) {
        if (deletes) await steps.chunk(change, audienceOf(users));
        else await removeUnfollowed(change, await fences.unfollowedAmong(change.user_id, users));
      }
    },
    whole: async (change, audience, nonFollowers) => {
      await steps.chunk(change, audience);
      if (nonFollowers === undefined) await steps.toRecentUnfollowers(change);
      else await removeUnfollowed(change, await fences.unfollowedAmong(change.user_id, nonFollowers));
      await steps.complete(change, { recipients: audience.ids.length, chunks: 1 });
    },
    complete: (change, size) => complete(completedOf(change, size)),
  };
  return steps;

  async function add(change: Change, audience: Audience): Promise<void> {
    if (change.created_at < fences.retentionStart()) return;
    const drops = [change.drop_id];
    let generation: string | undefined;
    const deleted = await writeUnlessDeleted(drops, {
      write: async () => {
        await failpoint("write", change.drop_id);
        await writer.addHome(audience, [{ drop: change.drop_id, score: change.created_at }]);
        await failpoint("written", change.drop_id);
      },
      tombstonedAmong: async () => {
        const looked = await Promise.all([fences.tombstonedAmong(drops), fences.generation(change.user_id)]);
        generation = looked[1];
        await failpoint("checked", change.drop_id);
        return looked[0];
      },
      remove: () => writer.removeHome(audience, drops),
    });
    if (deleted === undefined || deleted.size > 0) return;
    // The list of followers may have been read before some of them left.
    const left = generation === change.generation ? [] : await fences.unfollowedAmong(change.user_id, audience.ids);
    const gone = new Set(left);
    await removeUnfollowed(change, left);
    await tell(change, gone.size === 0 ? audience.ids : audience.ids.filter((id) => !gone.has(id)));
    await failpoint("notified", change.drop_id);
  }

  /** Who follows again by the end of it keeps the drop. */
  async function removeUnfollowed(change: Change, unfollowed: readonly string[]): Promise<void> {
    if (unfollowed.length === 0) return;
    await writer.removeHome(audienceOf(unfollowed), [change.drop_id]);
    const still = new Set(await fences.unfollowedAmong(change.user_id, unfollowed));
    const back = unfollowed.filter((user) => !still.has(user));
    if (back.length > 0) await add(change, audienceOf(back));
  }

  async function tell(change: Change, users: readonly string[], among?: Parameters<Notify>[2]): Promise<void> {
    if (users.length === 0 || change.silent || Date.now() - change.admitted_at > NOTIFY_WINDOW_MS) return;
    const { drop_id, created_at } = change;
    const added = change.action === "add";
    await notify(users, added ? { event: "new_drop", drop_id, created_at } : { event: "drop_deleted", drop_id }, among);
  }
}

function completedOf(change: Change, { recipients, chunks }: FanoutSize): FanoutCompleted {
  const { event, drop_id, user_id, created_at, admitted_at } = change;
  const landed = Date.now();
  // A drop from the past (imported, remote) has a lag only since it was admitted.
  const lag = Math.max(0, landed - Math.max(created_at, admitted_at));
  return { event, drop_id, user_id, recipients, chunks, created_at, admitted_at, landed_at: landed, lag_ms: lag };
}
