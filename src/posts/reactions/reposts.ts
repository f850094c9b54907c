import * as wire from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { readId } from "../../kernel/fields.js";
import { refuseWhileFull, storedDrop } from "../drops/drops.js";
import { refuseErased } from "../drops/erased.sql.js";
import { dropCreated, dropDeleted, engagementChanged } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import { NO_PAYLOAD } from "../drops/payload.js";
import { askingOnce } from "../drops/relations.js";
import { isUri, readAnyDropId } from "../drops/request.js";
import { localDropOr } from "../drops/uris.js";
import { isForEverybody } from "../drops/visibility.js";
import type { ReactionsDeps } from "./deps.js";
import { limitedReaction } from "./reactions.js";
import { findTarget, type Target } from "./targets.js";

/** A share makes a repost: a drop of its own, which lives as long as the share and its original do. */
export const repostDrops = (deps: ReactionsDeps, nextId: (now: number) => string) => ({
  /** A share made before reposts existed gets its repost now; `changed` is about the share, and false. */
  async shareDrop(request: wire.ShareDropRequest): Promise<wire.ShareDropResponse> {
    const dropId = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
    const sharer = readId("user_id", request.user_id);
    refuseWhileFull(deps);
    await refuseErased(deps, sharer);
    const original = await findShareable(askingOnce(deps, "user_id"), { field: "drop_id", id: dropId, sharer });
    const share = newShare(original, sharer, nextId(deps.now()));
    const reaction = shareOf(original.key, sharer);
    const shared = await limitedReaction(deps, reaction, () => deps.store.reposts.share(share));
    const { changed, repostId } = shared;
    if (!shared.found) throw deletedConflict("drop_id");
    if (changed || repostId === share.repostId) wakeRelays(deps);
    if (changed) observePosts.changed("shared");
    return { changed, repost_id: repostId ?? "" };
  },

  async unshareDrop(request: wire.UnshareDropRequest): Promise<wire.UnshareDropResponse> {
    const dropId = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
    const sharer = readId("user_id", request.user_id);
    await refuseErased(deps, sharer);
    const original = await keyOfOriginal(deps, dropId);
    const share = original === undefined ? undefined : await deps.store.reposts.shareOf(original, sharer);
    if (original === undefined || share === undefined || (!share.active && share.repostId === null))
      return { changed: false };
    return { changed: await withdrawShare(deps, { original, sharer, repostId: share.repostId ?? undefined }) };
  },
});

/** Resolves to undefined for a deleted drop. @throws AppError `notfound` */
async function keyOfOriginal(deps: ReactionsDeps, id: string): Promise<string | undefined> {
  if (isUri(id)) {
    const { key, deleted_at } = await findTarget(deps, "drop_id", id);
    return deleted_at === null ? key : undefined;
  }
  const drop = await storedDrop(deps, id);
  return drop.deleted_at === null ? drop.original_key || id : undefined;
}

/** The share of an original, its repost, which has the visibility of the target, and both events. */
export function newShare(original: Target, sharer: string, repostId: string) {
  const { id, key, isRemote, visibility, user_id: repost_author } = original;
  const repost = { drop_id: repostId, user_id: sharer, visibility, recipients: [], ...NO_TEXT };
  return {
    original: key,
    uri: isRemote ? id : undefined,
    sharer,
    repostId,
    visibility,
    created: dropCreated(repost, { repost_of: id, repost_author }),
    shared: engagementChanged(shareOf(key, sharer)),
  };
}

const NO_TEXT = { reply_to: "", reply_to_author: "", summary: "", body: "", mentions: [], ...NO_PAYLOAD };

interface Sharing {
  readonly field: string;
  readonly id: string;
  readonly sharer: string;
}

/** @throws AppError `notfound` if the user may not see the drop, or `conflict` if it cannot be shared */
export async function findShareable(deps: ReactionsDeps, { field, id, sharer }: Sharing): Promise<Target> {
  const drop = await findTarget(deps, field, id, sharer);
  if (drop.deleted_at !== null) throw deletedConflict(field);
  if (drop.repost_of !== "") return findShareable(deps, { field, id: drop.repost_of, sharer });
  if (isShareable(drop, sharer)) return drop;
  throw new AppError("conflict", `${field}: the drop is neither public nor unlisted, nor one's own for followers`);
}

export const isShareable = (drop: Target, sharer: string): boolean =>
  isForEverybody(drop) || (drop.visibility === wire.Visibility.FOLLOWERS && drop.user_id === sharer);

const deletedConflict = (field: string): AppError => new AppError("conflict", `${field}: the drop is deleted`);

export const shareOf = (drop_id: string, actor_id: string) => ({ drop_id, kind: "share", actor_id }) as const;

interface Share {
  readonly original: string;
  readonly sharer: string;
  readonly repostId: string | undefined;
}

/** Resolves to whether the drop was shared. The share may have got another repost meanwhile: that one stays. */
export async function withdrawShare(deps: ReactionsDeps, share: Share): Promise<boolean> {
  const { original, sharer, repostId } = share;
  const deleted = repostId === undefined ? undefined : dropDeleted(repostId, sharer);
  const unshared = engagementChanged(shareOf(original, sharer));
  const changed = await deps.store.reposts.withdraw({ ...share, deleted, unshared });
  wakeRelays(deps);
  if (changed) observePosts.changed("unshared");
  return changed;
}

function wakeRelays({ wakeRelay }: ReactionsDeps): void {
  wakeRelay("posts");
  wakeRelay("reactions");
}

const REPOSTS_AT_ONCE = 1_000;
/** Maximum number of batches in a call. The maintenance deletes the others, and those of a call that broke off. */
const MAX_STEPS = 10;

export async function removeReposts({ store, wakeRelay }: ReactionsDeps, original: string): Promise<void> {
  for (let step = 0; step < MAX_STEPS; step++) {
    const removed = await store.reposts.removeOf([original], REPOSTS_AT_ONCE);
    if (removed > 0) wakeRelay("posts");
    if (removed < REPOSTS_AT_ONCE) return;
  }
}
