import { z } from "zod";
import { parseJson } from "../../contracts/events.js";
import { understood } from "../../contracts/untrusted.js";
import type { Handler } from "../../delivery/handler.js";
import type { GetCountsRequest, GetCountsResponse } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { readId } from "../../kernel/fields.js";
import { createBatch } from "../../kernel/sharing.js";
import type { Use } from "../../state/index.js";
import { storedDrop } from "../drops/drops.js";
import { refuseErased } from "../drops/erased.sql.js";
import { dropReacted, engagementChanged, REACTION_KINDS, type ReactionKey } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import { isUri, readAnyDropId, readDropId, readDropIds } from "../drops/request.js";
import { localDropOr } from "../drops/uris.js";
import { isBetweenBlocked } from "../drops/visibility.js";
import type { ReactionsDeps } from "./deps.js";
import type { ReactionStore } from "./reactions.sql.js";
import { findTarget, type Target } from "./targets.js";

const MAX_COUNTS = 200;
const NONE = { likes: 0, shares: 0, replies: 0 } as const;

export const reactToDrops = (deps: ReactionsDeps) => ({
  likeDrop: react(deps, true),
  unlikeDrop: react(deps, false),

  async getCounts(request: GetCountsRequest): Promise<GetCountsResponse> {
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

const react =
  (deps: ReactionsDeps, active: boolean) =>
  async (request: { readonly drop_id: string; readonly user_id: string }): Promise<{ changed: boolean }> => {
    const id = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
    const actor_id = readId("user_id", request.user_id);
    const target = isUri(id) ? await findTarget(deps, "drop_id", id) : undefined;
    if (target && target.deleted_at !== null) return refused(target, active);
    const reaction = { drop_id: target?.key ?? id, kind: "like", actor_id } as const;
    const told = target === undefined ? dropReacted(reaction, active ? deps.now() : undefined) : undefined;
    const write = () =>
      deps.store.reactions.like({ like: reaction, active, counted: engagementChanged(reaction), told });
    if (active) await requireUnblocked(deps, reaction, target);
    const result = await (active ? limitedReaction(deps, reaction, write) : write());
    if (!result.found) return refused(target ?? (await storedDrop(deps, id)), active);
    if (result.changed) {
      deps.wakeRelay("reactions");
      if (told) deps.wakeRelay("activity");
      observePosts.changed(active ? "liked" : "unliked");
    }
    return { changed: result.changed };
  };

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

/**
 * @throws AppError `notfound` if the user and one of the drop's people block each other: a reaction that exists can be
 * taken back
 */
async function requireUnblocked(
  deps: ReactionsDeps,
  { drop_id, actor_id }: ReactionKey,
  target: Target | undefined,
): Promise<void> {
  if (deps.relationsTo === undefined && deps.isSuspended === undefined) return;
  await refuseErased(deps, actor_id);
  const drop = target ?? (await deps.store.drops.byId(drop_id));
  if (drop && (await isBetweenBlocked(deps, { field: "user_id", user: actor_id }, drop)))
    throw new AppError("notfound", "drop_id: there is no such drop");
}

/** A deleted drop and a repost have no likes: there is nothing to take back, and none can be added. */
function refused(
  { repost_of, deleted_at }: Pick<Target, "repost_of" | "deleted_at">,
  active: boolean,
): { changed: false } {
  if (!active) return { changed: false };
  throw new AppError(
    "conflict",
    `drop_id: the drop is ${deleted_at === null && repost_of !== "" ? "a repost" : "deleted"}`,
  );
}

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
