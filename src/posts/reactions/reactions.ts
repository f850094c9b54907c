import { z } from "zod";
import { parseJson } from "../../contracts/events.js";
import { understood } from "../../contracts/untrusted.js";
import type { Handler } from "../../delivery/handler.js";
import type * as wire from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { readId } from "../../kernel/fields.js";
import { createBatch } from "../../kernel/sharing.js";
import type { Use } from "../../state/index.js";
import { refuseErased } from "../drops/erased.sql.js";
import { dropReacted, engagementChanged, REACTION_KINDS, type ReactionKey } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import { isUri, readAnyDropId, readDropId, readDropIds } from "../drops/request.js";
import { localDropOr } from "../drops/uris.js";
import type { ReactionsDeps } from "./deps.js";
import type { ReactionStore } from "./reactions.sql.js";
import { findTarget, refuseHidden, type Target, targetOf } from "./targets.js";

const MAX_COUNTS = 200;
const NONE = { likes: 0, shares: 0, replies: 0 } as const;

export const reactToDrops = (deps: ReactionsDeps) => ({
  likeDrop: (request: LikeRequest) => likeDrop(deps, request),
  unlikeDrop: (request: LikeRequest) => unlikeDrop(deps, request),

  async getCounts(request: wire.GetCountsRequest): Promise<wire.GetCountsResponse> {
    const ids = readDropIds("drop_ids", request.drop_ids, MAX_COUNTS);
    const stored = ids.map((id) => localDropOr(id, deps.config));
    const [local, uris] = [stored.filter((id) => !isUri(id)), stored.filter(isUri)];
    const counts = await Promise.all([
      local.length === 0 ? [] : deps.store.reactions.counts(local),
      uris.length === 0 ? [] : deps.store.reactions.remoteCounts(uris),
    ]);
    const byId = new Map(counts.flat().map((count) => [count.drop_id, count]));
    return { counts: ids.map((drop_id, index) => ({ ...NONE, ...byId.get(stored[index] as string), drop_id })) };
  },
});

type LikeRequest = wire.LikeDropRequest | wire.UnlikeDropRequest;

const readLike = (request: LikeRequest, { config }: ReactionsDeps) => ({
  id: readAnyDropId("drop_id", localDropOr(request.drop_id, config)),
  user: readId("user_id", request.user_id),
});

const likeOf = (drop_id: string, actor_id: string) => ({ drop_id, kind: "like", actor_id }) as const;

async function likeDrop(deps: ReactionsDeps, request: LikeRequest): Promise<wire.LikeDropResponse> {
  const { id, user } = readLike(request, deps);
  const target = await findLikeable(deps, id, user);
  if (target.deleted_at !== null) throw refusalOf(target);
  const like = likeOf(target.key, user);
  const told = target.isRemote ? undefined : dropReacted(like, deps.now());
  const write = () => deps.store.reactions.like({ like, active: true, counted: engagementChanged(like), told });
  const result = await limitedReaction(deps, like, write);
  if (!result.found) throw refusalOf(target);
  if (result.changed) changedLike(deps, target.isRemote, "liked");
  return { changed: result.changed };
}

/** The statement finds a drop of this server by itself. */
async function unlikeDrop(deps: ReactionsDeps, request: LikeRequest): Promise<wire.UnlikeDropResponse> {
  const { id, user } = readLike(request, deps);
  const key = isUri(id) ? (await targetOf(deps, id))?.key : id;
  if (key) {
    const like = likeOf(key, user);
    const told = isUri(id) ? undefined : dropReacted(like, undefined);
    const write = { like, active: false, counted: engagementChanged(like), told };
    const { changed } = await deps.store.reactions.like(write);
    if (changed) changedLike(deps, isUri(id), "unliked");
    if (changed || (await deps.store.reactions.isStored(like))) return { changed };
  }
  await refuseHidden(deps, id, user);
  return { changed: false };
}

function changedLike(deps: ReactionsDeps, isRemote: boolean, change: "liked" | "unliked"): void {
  deps.wakeRelay("reactions");
  if (!isRemote) deps.wakeRelay("activity");
  observePosts.changed(change);
}

/** A like or a share counts unless it changes nothing; a share is a drop, too. */
export const limitedReaction = <Result extends { readonly changed: boolean }>(
  { limited, config, store }: ReactionsDeps,
  reaction: ReactionKey,
  write: () => Promise<Result>,
  changesNothing: () => Promise<boolean> = () => store.reactions.isActive(reaction),
): Promise<Result> =>
  limited(usesOf(reaction, config), {
    write,
    changed: ({ changed }) => changed,
    changesNothing,
  });

function usesOf({ actor_id: user, kind }: ReactionKey, { limitReactions, limitDrops }: ReactionsDeps["config"]): Use[] {
  const reaction: Use = { kind: "reactions", user, limit: limitReactions };
  return kind === "share" ? [reaction, { kind: "drops", user, limit: limitDrops }] : [reaction];
}

/** @throws AppError `notfound` if the user may not see the drop, `conflict` if the user is erased */
const findLikeable = (deps: ReactionsDeps, id: string, user: string): Promise<Target> =>
  findTarget({ ...deps, viewerField: "user_id" }, "drop_id", id, user).catch(async (error: unknown) => {
    // The statement that stores a like refuses the erased by itself.
    await refuseErased(deps, user);
    throw error;
  });

/** A deleted drop and a repost cannot be liked. */
const refusalOf = ({ repost_of, deleted_at }: Target): AppError =>
  new AppError("conflict", `drop_id: the drop is ${deleted_at === null && repost_of !== "" ? "a repost" : "deleted"}`);

const BATCH = 500;

const message = z.object({ drop_id: z.string(), kind: z.enum(REACTION_KINDS), actor_id: z.string() });

/** Handles `engagement.changed`. A message only names a reaction, so that it may arrive twice and in any order. */
export function createCountEngagement({ count }: Pick<ReactionStore, "count">): Handler {
  const batch = createBatch<ReactionKey>(BATCH, async (reactions) => {
    await count(reactions);
    observePosts.counted(reactions.length);
  });
  return async ({ body }) => {
    const { drop_id, kind, actor_id } = understood(message, parseJson(body));
    await batch({ drop_id: readDropId("drop_id", drop_id), kind, actor_id: readId("actor_id", actor_id) });
  };
}
