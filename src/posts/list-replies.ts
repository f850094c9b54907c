import type { ListRepliesRequest, ListRepliesResponse } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { readSize } from "../kernel/paging.js";
import { findDrop, type PostsDeps, visibleTo } from "./deps.js";
import { FIRST_ID } from "./drop-ids.js";
import { presentDetails } from "./present.js";
import { isShown } from "./remote-objects.js";
import { isUri, readAnyDropId, readViewer, TEXT_PAGES } from "./request.js";

/** Oldest first; a deleted drop keeps its replies. */
export const listReplies =
  (deps: PostsDeps) =>
  async (request: ListRepliesRequest): Promise<ListRepliesResponse> => {
    const dropId = readAnyDropId("drop_id", request.drop_id);
    const viewer = readViewer(request.viewer_id);
    const list = ["replies", dropId, viewer ?? ""] as const;
    const size = readSize("page_size", request.page_size, TEXT_PAGES);
    const [after] = deps.tokens.read<[string]>(list, request.page_token) ?? [FIRST_ID];
    if (viewer !== undefined) await requireParent(deps, dropId, viewer);
    const replies = await deps.store.drops.replies({ replyTo: dropId, after, viewer: viewer ?? "" }, size + 1);
    if (replies.length === 0 && !isUri(dropId)) await findDrop(deps, dropId);
    const { items, nextPageToken } = deps.tokens.page(list, replies, size, (reply) => [reply.dropId]);
    const visible = await visibleTo(deps, viewer, items);
    return { replies: visible.map(presentDetails), next_page_token: nextPageToken };
  };

async function requireParent(deps: PostsDeps, dropId: string, viewer: string): Promise<void> {
  if (!isUri(dropId)) return void (await findDrop(deps, dropId, viewer));
  const object = await deps.store.remote.get(dropId);
  if (object !== undefined && !(await isShown(deps, viewer, object)))
    throw new AppError("notfound", "drop_id: there is no such drop");
}
