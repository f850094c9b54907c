import { RemoteReactionKind } from "../../gen/avion/posts.js";
import { codeOf } from "../../kernel/errors.js";
import { dropDeleted, dropReacted, engagementChanged } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import { isShareable, newShare, shareOf } from "../reactions/reposts.js";
import { keyFor, type Target, targetOf } from "../reactions/targets.js";
import type { LinkDeps } from "./deps.js";
import { type GroupWrites, LINKED, type ReactionGroup, type RemoteReaction } from "./remote-reactions.sql.js";

/**
 * A reaction of a remote actor is stored first, and counted afterwards as it then stands: the order in which the
 * reaction, its deletion and its object come does not matter. The maintenance counts reactions of a process that died.
 */
export async function linkReactions(deps: LinkDeps, limit: number): Promise<number> {
  const reactions = await deps.store.remoteReactions.unlinked(limit);
  for (const reaction of reactions) await linkReaction(deps, reaction);
  return reactions.length;
}

export const REACTIONS_TASK = "links-of-remote-reactions";

const AT_ONCE = 100;

/** Counts the reactions that came before their object. Resolves to false if more are left. */
export async function linkWaiting(deps: LinkDeps, object: string): Promise<boolean> {
  const reactions = await deps.store.remoteReactions.waitingFor(object, AT_ONCE);
  for (const reaction of reactions) await linkReaction(deps, reaction);
  return reactions.length < AT_ONCE;
}

/** The maintenance goes on after a failure: the reaction itself is stored, or deleted. */
export async function linkReactionNow(deps: LinkDeps, reaction: GroupOfTime): Promise<void> {
  await linkReaction(deps, reaction).catch(() => observePosts.maintenanceFailed(REACTIONS_TASK));
}

async function linkReaction(deps: LinkDeps, { created_at, ...group }: GroupOfTime): Promise<void> {
  const { store, wakeRelay } = deps;
  const target = await targetOf(deps, group.object);
  const repostId = keyFor(created_at, deps);
  if (group.kind === RemoteReactionKind.SHARE) await store.links.ensureMonth(repostId);
  await store.remoteReactions.withGroup(group, async (living, writes) => {
    if (target === undefined) return writes.done(LINKED.waiting);
    if (target.deleted_at === null) await settle({ target, group, repostId, living }, writes);
    return writes.done(LINKED.counted);
  });
  wakeRelay?.("posts");
  wakeRelay?.("reactions");
  wakeRelay?.("activity");
}

type GroupOfTime = ReactionGroup & Pick<RemoteReaction, "created_at">;

interface Settling {
  readonly target: Target;
  readonly group: ReactionGroup;
  readonly repostId: string;
  readonly living: readonly RemoteReaction[];
}

/** The reactions of an actor who is erased meanwhile go by the erasure. */
async function settle(settling: Settling, writes: GroupWrites): Promise<void> {
  const { target, group, living } = settling;
  const isLike = group.kind === RemoteReactionKind.LIKE;
  const like = { drop_id: target.key, kind: "like", actor_id: group.actor_uri } as const;
  // The actor may have liked the drop more than once.
  const [first] = living.map(({ created_at }) => created_at).sort((a, b) => a - b);
  const told = target.isRemote ? undefined : dropReacted(like, first);
  try {
    if (isLike)
      await writes.reactions.like({ like, active: living.length > 0, counted: engagementChanged(like), told });
    else await settleShare(settling, writes);
  } catch (error) {
    if (codeOf(error) !== "conflict") throw error;
  }
}

async function settleShare({ target, group, repostId, living }: Settling, { reposts }: GroupWrites): Promise<void> {
  const sharer = group.actor_uri;
  if (living.length > 0 && isShareable(target, sharer)) {
    const visibility = Math.max(target.visibility, ...living.map(({ visibility }) => visibility));
    await reposts.share(newShare({ ...target, visibility }, sharer, repostId));
    return;
  }
  const share = await reposts.shareOf(target.key, sharer);
  if (share === undefined || (!share.active && share.repostId === null)) return;
  const repost = share.repostId ?? undefined;
  await reposts.withdraw({
    original: target.key,
    sharer,
    repostId: repost,
    deleted: repost === undefined ? undefined : dropDeleted(repost, sharer),
    unshared: engagementChanged(shareOf(target.key, sharer)),
  });
}
