import * as wire from "../gen/avion/posts.js";
import { readId } from "../kernel/fields.js";
import type { PageLimits } from "../kernel/paging.js";
import { isBetweenBlocked, type PostsDeps, presentDetails, type ShownDrop, shownTo } from "./drops.js";
import type { StoredDrop } from "./drops.sql.js";
import type { At, ListedReaction, ReactedDrop } from "./lists.sql.js";
import { FIELD_BYTES, fillPage, type PageOf, partOf, textPages } from "./pages.js";
import { askingOnce, isHidden, relationsOf } from "./relations.js";
import { localOr } from "./reply-to.js";
import { readAnyDropId, readViewer } from "./request.js";
import { findTarget } from "./targets.js";

const ID_PAGES: PageLimits = { default: 100, max: 1_000 };

interface Request {
  readonly viewer_id: string;
  readonly page_size: number;
  readonly page_token: string;
}

type OfDrop = Request & { readonly drop_id: string };
type OfUser = Request & { readonly user_id: string };

/** All lists are newest first, as a viewer may see them, and pages are filled. */
export const lists = (deps: PostsDeps) => ({
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

  async listUserDrops(request: wire.ListUserDropsRequest): Promise<wire.ListUserDropsResponse> {
    const userId = readId("user_id", request.user_id);
    const viewer = readViewer(request.viewer_id);
    const { replies, reposts } = request;
    const sizes = textPages(deps.config);
    const list = ["user-drops", userId, viewer ?? "", Number(replies), Number(reposts)] as const;
    const page = deps.tokens.open<[string]>(list, request, sizes);
    const asking = askingOnce(deps);
    if (await isBlockedFrom(asking, viewer, userId)) return { drops: [], next_page_token: "" };
    const isListed = ({ reply_to, repost_of }: StoredDrop): boolean =>
      (replies || reply_to === "") && (reposts || repost_of === "");
    const wanted = { userId, viewer: viewer ?? "", replies, reposts };
    const { items, next_page_token } = await fillPage<ShownDrop, [string]>(page, {
      most: sizes.max,
      keyOf: ({ drop_id }) => [drop_id],
      read: (after, limit) => deps.store.lists.userDrops(wanted, after, limit),
      keep: (drops) => shownTo(asking, viewer, drops.filter(isListed)),
      // Documents of others may be much longer than drops of this server.
      bytesOf: (drop) => FIELD_BYTES + wire.DropDetails.encode(presentDetails(drop)).finish().length,
    });
    return { drops: items.map(presentDetails), next_page_token };
  },
});

export async function listOfDrop(
  deps: PostsDeps,
  kind: "like" | "share",
  request: OfDrop,
): Promise<PageOf<ListedReaction>> {
  const dropId = readAnyDropId("drop_id", localOr(request.drop_id, deps.config));
  const viewer = readViewer(request.viewer_id);
  const page = deps.tokens.open<At>([`${kind}s`, dropId, viewer ?? ""], request, ID_PAGES);
  const drop = await findTarget(deps, "drop_id", dropId, viewer);
  // Its reactions are removed soon.
  if (drop.deleted_at !== null) return { items: [], next_page_token: "" };
  const keyOf = ({ at, user_id }: ListedReaction): At => [at, user_id];
  return fillPage(page, {
    ...{ keyOf, most: ID_PAGES.max },
    read: async (after, limit) => partOf(await deps.store.lists.ofDrop(drop.key, kind, after, limit), limit, keyOf),
    keep: async (listed) => {
      const shares = listed.map((share) => ({ ...share, of: drop }));
      const reactions = await withoutNarrower(deps, viewer, shares);
      if (viewer === undefined) return reactions;
      const people = reactions.map(({ user_id }) => user_id);
      const relations = await relationsOf(deps, { field: "viewer_id", user: viewer }, people);
      return reactions.filter(({ user_id }) => !isHidden(relations?.get(user_id)));
    },
  });
}

async function listOfUser(
  deps: PostsDeps,
  kind: "like" | "share",
  request: OfUser,
): Promise<PageOf<wire.DropReaction>> {
  const userId = readId("user_id", request.user_id);
  const viewer = readViewer(request.viewer_id);
  const page = deps.tokens.open<At>([`user-${kind}s`, userId, viewer ?? ""], request, ID_PAGES);
  if (await isBlockedFrom(deps, viewer, userId)) return { items: [], next_page_token: "" };
  const keyOf = ({ at, key }: Pick<ReactedDrop, "at" | "key">): At => [at, key];
  const isKept = ({ deleted }: { readonly deleted: boolean }): boolean => !deleted;
  return fillPage(page, {
    ...{ keyOf, most: ID_PAGES.max },
    read: async (after, limit) => partOf(await deps.store.lists.ofUser(userId, kind, after, limit), limit, keyOf),
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

/** Leaves out shares that are for fewer than their drop, unless the viewer is among these. */
async function withoutNarrower<Share extends Narrower>(
  deps: PostsDeps,
  viewer: string | undefined,
  shares: readonly Share[],
): Promise<readonly Share[]> {
  const narrower = shares.flatMap((share) => {
    const { user_id, visibility } = share;
    return visibility === null || visibility <= share.of.visibility
      ? []
      : { user_id, visibility, recipients: [], share };
  });
  if (narrower.length === 0) return shares;
  const shown = new Set((await shownTo(deps, viewer, narrower)).map(({ share }) => share));
  const hidden = new Set(narrower.map(({ share }) => share).filter((share) => !shown.has(share)));
  return shares.filter((share) => !hidden.has(share));
}

const isBlockedFrom = async (deps: PostsDeps, viewer: string | undefined, userId: string): Promise<boolean> =>
  viewer !== undefined && isBetweenBlocked(deps, { field: "viewer_id", user: viewer }, { user_id: userId });
