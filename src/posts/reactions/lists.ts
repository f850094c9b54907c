import type * as wire from "../../gen/avion/posts.js";
import { readId } from "../../kernel/fields.js";
import type { PageLimits } from "../../kernel/paging.js";
import { chunkOf, fillPage, type PageOf } from "../drops/pages.js";
import { askingOnce, isHidden, relationsOf } from "../drops/relations.js";
import { readAnyDropId, readViewer } from "../drops/request.js";
import { localDropOr } from "../drops/uris.js";
import { isBlockedFrom, isForEverybody, shownTo } from "../drops/visibility.js";
import type { ReactionsDeps } from "./deps.js";
import type { At, ListedReaction, ReactedDrop } from "./lists.sql.js";
import { findTarget } from "./targets.js";

const ID_PAGES: PageLimits = { default: 100, max: 1_000 };

interface Request {
  readonly viewer_id: string;
  readonly page_size: number;
  readonly page_token: string;
}

type OfDrop = Request & { readonly drop_id: string };
type OfUser = Request & { readonly user_id: string };

/** Lists contain the reactions that the viewer may see, newest first, in full pages. */
export const lists = (deps: ReactionsDeps) => ({
  async listLikes(request: wire.ListLikesRequest): Promise<wire.ListLikesResponse> {
    const { items, next_page_token } = await listOfDrop(askingOnce(deps), "like", request);
    return { likes: items, next_page_token };
  },

  async listShares(request: wire.ListSharesRequest): Promise<wire.ListSharesResponse> {
    const { items, next_page_token } = await listOfDrop(askingOnce(deps), "share", request);
    return { shares: items, next_page_token };
  },

  async listUserLikes(request: wire.ListUserLikesRequest): Promise<wire.ListUserLikesResponse> {
    const { items, next_page_token } = await listOfUser(askingOnce(deps), "like", request);
    return { likes: items, next_page_token };
  },

  async listUserShares(request: wire.ListUserSharesRequest): Promise<wire.ListUserSharesResponse> {
    const { items, next_page_token } = await listOfUser(askingOnce(deps), "share", request);
    return { shares: items, next_page_token };
  },
});

export async function listOfDrop(
  deps: ReactionsDeps,
  kind: "like" | "share",
  request: OfDrop,
): Promise<PageOf<ListedReaction>> {
  const dropId = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
  const viewer = readViewer(request.viewer_id);
  const page = deps.tokens.open<At>([`${kind}s`, dropId, viewer ?? ""], request, ID_PAGES);
  const drop = await findTarget(deps, "drop_id", dropId, viewer);
  // Its reactions are removed soon.
  if (drop.deleted_at !== null) return { items: [], next_page_token: "" };
  const keyOf = (reaction: ListedReaction): At => [reaction.at, reaction.user_id];
  return fillPage(page, {
    keyOf,
    most: ID_PAGES.max,
    read: async (after, limit) => chunkOf(await deps.store.lists.ofDrop(drop.key, kind, after, limit), limit, keyOf),
    keep: async (listed) => {
      const shares = listed.map((share) => ({ ...share, of: drop }));
      const all = await withoutNarrower(deps, viewer, shares);
      const reactions = all.filter(({ user_id }) => !deps.isSuspended?.(user_id));
      if (viewer === undefined) return reactions;
      const people = reactions.map(({ user_id }) => user_id);
      const relations = await relationsOf(deps, { field: "viewer_id", user: viewer }, people);
      return reactions.filter(({ user_id }) => !isHidden(relations?.get(user_id)));
    },
  });
}

async function listOfUser(
  deps: ReactionsDeps,
  kind: "like" | "share",
  request: OfUser,
): Promise<PageOf<wire.DropReaction>> {
  const userId = readId("user_id", request.user_id);
  const viewer = readViewer(request.viewer_id);
  const page = deps.tokens.open<At>([`user-${kind}s`, userId, viewer ?? ""], request, ID_PAGES);
  if (await isBlockedFrom(deps, viewer, userId)) return { items: [], next_page_token: "" };
  const keyOf = (drop: Pick<ReactedDrop, "at" | "key">): At => [drop.at, drop.key];
  const isKept = ({ deleted }: { readonly deleted: boolean }): boolean => !deleted;
  return fillPage(page, {
    keyOf,
    most: ID_PAGES.max,
    read: async (after, limit) => chunkOf(await deps.store.lists.ofUser(userId, kind, after, limit), limit, keyOf),
    keep: async (drops) => {
      const shown = await shownTo(deps, viewer, drops.filter(isKept));
      const shares = shown.map((drop) => ({ user_id: userId, visibility: drop.share_visibility, of: drop }));
      return (await withoutNarrower(deps, viewer, shares)).map((share) => share.of);
    },
  });
}

interface Narrower {
  readonly user_id: string;
  readonly visibility: number | null;
  readonly of: { readonly visibility: wire.Visibility };
}

/**
 * Omits shares that are for fewer than their drop, unless the viewer is among these: one for followers is for fewer than
 * a drop for followers, which is for those whom it mentions, too.
 */
async function withoutNarrower<Share extends Narrower>(
  deps: ReactionsDeps,
  viewer: string | undefined,
  shares: readonly Share[],
): Promise<readonly Share[]> {
  const narrower = shares.flatMap((share) => {
    const { user_id, visibility } = share;
    const isOfViewer = viewer === undefined || isForEverybody({ visibility: visibility ?? 0 });
    if (visibility === null || (visibility <= share.of.visibility && isOfViewer)) return [];
    return { user_id, visibility, recipients: [], share };
  });
  if (narrower.length === 0) return shares;
  const shown = new Set((await shownTo(deps, viewer, narrower)).map(({ share }) => share));
  const hidden = new Set(narrower.map(({ share }) => share).filter((share) => !shown.has(share)));
  return shares.filter((share) => !hidden.has(share));
}
