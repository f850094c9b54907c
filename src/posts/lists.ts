import * as wire from "../gen/avion/posts.js";
import { readId } from "../kernel/fields.js";
import type { PageLimits } from "../kernel/paging.js";
import { isBetweenBlocked, judged, type PostsDeps, presentDetails, shownTo } from "./drops.js";
import type { StoredDrop } from "./drops.sql.js";
import { LAST_ID } from "./ids.js";
import type { At, ListedReaction, ReactedDrop } from "./lists.sql.js";
import { FIELD_BYTES, fillPage, type PageOf, type Part, partOf, textPages } from "./pages.js";
import { bytesOfReply, presentReply, type Reply } from "./read-drops.js";
import { askingOnce, isHidden, relationsOf } from "./relations.js";
import { localOr } from "./reply-to.js";
import { isUri, readAnyDropId, readViewer } from "./request.js";
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
    if (await isBlockedFrom(asking, viewer, userId)) return { drops: [], items: [], next_page_token: "" };
    const isListed = (drop: Reply): boolean =>
      (replies || drop.reply_to === "") && (reposts || "uri" in drop || drop.repost_of === "");
    const isRemote = isUri(userId);
    const wanted = { userId, viewer: viewer ?? "", replies, reposts };
    const { items, next_page_token } = await fillPage<Reply, [string]>(page, {
      most: sizes.max,
      keyOf: ({ drop_id }) => [drop_id],
      read: (after, limit) => dropsOf(deps, wanted, after, limit),
      keep: (drops) => shownTo(asking, viewer, drops.filter(isListed)),
      // Documents of others may be much longer than drops of this server.
      bytesOf: (drop) => (isRemote || "uri" in drop ? bytesOfReply(drop) : bytesOfDrop(drop)),
    });
    const drops = items.flatMap((drop) => ("uri" in drop ? [] : presentDetails(drop)));
    return { drops, items: isRemote ? items.map(presentReply) : [], next_page_token };
  },
});

const bytesOfDrop = (drop: StoredDrop): number =>
  FIELD_BYTES + wire.DropDetails.encode(presentDetails(drop)).finish().length;

/** A remote actor has remote drops, and reposts here. */
async function dropsOf(
  { store }: PostsDeps,
  wanted: Parameters<PostsDeps["store"]["lists"]["userDrops"]>[0],
  after: [string] | undefined,
  limit: number,
): Promise<Part<Reply, [string]>> {
  const own = await store.lists.userDrops(wanted, after, limit);
  if (!isUri(wanted.userId)) return own;
  const remote = await store.remote.listed(wanted, after?.[0] ?? LAST_ID, limit);
  // Below the last one that was looked at there may be more of the reposts.
  const reached = remote.filter(({ drop_id }) => own.next === undefined || drop_id > own.next[0]);
  const all: Reply[] = [...own.rows, ...reached.map(judged)].sort((a, b) => (a.drop_id > b.drop_id ? -1 : 1));
  const rows = all.slice(0, limit);
  const last = rows.at(-1);
  const isWhole = rows.length < limit && own.next === undefined;
  return { rows, next: isWhole || last === undefined ? undefined : [last.drop_id] };
}

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
