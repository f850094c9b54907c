import type * as wire from "../../gen/avion/posts.js";
import { readId } from "../../kernel/fields.js";
import type { DropsDeps } from "./deps.js";
import { bytesOfDrop, bytesOfReply, presentDetails, presentReply, type Reply } from "./drops.js";
import { LAST_ID } from "./ids.js";
import { type Chunk, fillPage, textPages } from "./pages.js";
import { askingOnce } from "./relations.js";
import { isUri, readViewer } from "./request.js";
import { isBlockedFrom, judged, shownTo } from "./visibility.js";

export const userDrops = (deps: DropsDeps) => ({
  /** Answers the drops of a user that the viewer may see, newest first, in full pages. */
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

/** Reads drops of a user, or of a remote actor, who has remote drops, and reposts on this server. */
async function dropsOf(
  { store }: DropsDeps,
  wanted: Parameters<DropsDeps["store"]["lists"]["userDrops"]>[0],
  after: [string] | undefined,
  limit: number,
): Promise<Chunk<Reply, [string]>> {
  const local = await store.lists.userDrops(wanted, after, limit);
  if (!isUri(wanted.userId)) return local;
  const remote = await store.remote.listed(wanted, after?.[0] ?? LAST_ID, limit);
  // Below the last one that was looked at there may be more of the reposts.
  const reached = remote.filter(({ drop_id }) => local.next === undefined || drop_id > local.next[0]);
  const all: Reply[] = [...local.rows, ...reached.map(judged)].sort((a, b) => (a.drop_id > b.drop_id ? -1 : 1));
  const rows = all.slice(0, limit);
  const last = rows.at(-1);
  const isWhole = rows.length < limit && local.next === undefined;
  return { rows, next: isWhole || last === undefined ? undefined : [last.drop_id] };
}
