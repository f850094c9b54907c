import * as wire from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { findDrop, isForEverybody, type PostsDeps, refuseWhileFull, storedDrop } from "./drops.js";
import type { StoredDrop } from "./drops.sql.js";
import { dropCreated, dropDeleted, engagementChanged } from "./events.js";
import { observePosts } from "./observe.js";
import { limitedReaction } from "./reactions.js";
import { askingOnce } from "./relations.js";
import { readDropId } from "./request.js";

/** A share makes a repost: a drop of its own, which lives as long as the share and its original do. */
export const repostDrops = (deps: PostsDeps, nextId: (now: number) => string) => ({
  /**
   * Shares the original where the drop is a repost. A share made before reposts existed gets its repost now; `changed`
   * is about the share, and false.
   */
  async shareDrop(request: wire.ShareDropRequest): Promise<wire.ShareDropResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const sharer = readId("user_id", request.user_id);
    refuseWhileFull(deps);
    const original = await findShareable(askingOnce(deps, "user_id"), dropId, sharer);
    const repost = { ...original, drop_id: nextId(deps.now()), user_id: sharer };
    const share = shareOf(original.drop_id, sharer);
    const { found, changed, repostId } = await limitedReaction(deps, share, () =>
      deps.store.reposts.share({
        original: original.drop_id,
        sharer,
        repostId: repost.drop_id,
        created: dropCreated(repost, { repost_of: original.drop_id, repost_author: original.user_id }),
        shared: engagementChanged(share),
      }),
    );
    if (!found) throw isDeleted();
    if (changed || repostId === repost.drop_id) wakeRelays(deps);
    if (changed) observePosts.changed("shared");
    return { changed, repost_id: repostId ?? "" };
  },

  /** Withdraws the share of the original where the drop is a repost. */
  async unshareDrop(request: wire.UnshareDropRequest): Promise<wire.UnshareDropResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const sharer = readId("user_id", request.user_id);
    const drop = await storedDrop(deps, dropId);
    if (drop.deleted_at !== null) return { changed: false };
    const original = drop.repost_of || dropId;
    const share = await deps.store.reposts.shareOf(original, sharer);
    if (share === undefined || (!share.active && share.repostId === null)) return { changed: false };
    return { changed: await withdrawShare(deps, { original, sharer, repostId: share.repostId ?? undefined }) };
  },
});

/** @throws AppError `notfound` if the user may not see the drop, or `conflict` if it cannot be shared */
async function findShareable(deps: PostsDeps, dropId: string, sharer: string): Promise<StoredDrop> {
  const drop = await findDrop(deps, dropId, sharer);
  if (drop.deleted_at !== null) throw isDeleted();
  if (drop.repost_of !== "") return findShareable(deps, drop.repost_of, sharer);
  const isOwnForFollowers = drop.visibility === wire.Visibility.FOLLOWERS && drop.user_id === sharer;
  if (isForEverybody(drop) || isOwnForFollowers) return drop;
  throw new AppError("conflict", "drop_id: the drop is neither public nor unlisted, nor one's own for followers");
}

const isDeleted = (): AppError => new AppError("conflict", "drop_id: the drop is deleted");

const shareOf = (drop_id: string, actor_id: string) => ({ drop_id, kind: "share", actor_id }) as const;

interface Share {
  readonly original: string;
  readonly sharer: string;
  readonly repostId: string | undefined;
}

/** Resolves to whether the drop was shared. The share may have got another repost meanwhile: that one stays. */
export async function withdrawShare(deps: PostsDeps, share: Share): Promise<boolean> {
  const { original, sharer, repostId } = share;
  const deleted = repostId === undefined ? undefined : dropDeleted(repostId, sharer);
  const unshared = engagementChanged(shareOf(original, sharer));
  const changed = await deps.store.reposts.withdraw({ ...share, deleted, unshared });
  wakeRelays(deps);
  if (changed) observePosts.changed("unshared");
  return changed;
}

function wakeRelays({ wakeRelay }: PostsDeps): void {
  wakeRelay("posts");
  wakeRelay("reactions");
}

const REPOSTS_AT_ONCE = 1_000;
/** The maintenance deletes what is left, also of a call that did not end. */
const MAX_STEPS = 10;

export async function removeReposts({ store, wakeRelay }: PostsDeps, original: string): Promise<void> {
  for (let step = 0; step < MAX_STEPS; step++) {
    const removed = await store.reposts.removeOf([original], REPOSTS_AT_ONCE);
    if (removed > 0) wakeRelay("posts");
    if (removed < REPOSTS_AT_ONCE) return;
  }
}
