import type { ListRepliesRequest, ListRepliesResponse } from "../gen/avion/posts.js";
import { readSize } from "../kernel/paging.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { FIRST_ID } from "./drop-ids.js";
import { TEXT_PAGES } from "./limits.js";
import { presentDetails } from "./present.js";
import { isUri, readAnyDropId } from "./request.js";

/** The replies to a drop of this server or a foreign one, oldest first; a deleted drop keeps its replies. */
export const listReplies =
  (deps: PostsDeps) =>
  async (request: ListRepliesRequest): Promise<ListRepliesResponse> => {
    const dropId = readAnyDropId("drop_id", request.drop_id);
    const list = ["replies", dropId] as const;
    const size = readSize("page_size", request.page_size, TEXT_PAGES);
    const [after] = deps.tokens.read<[string]>(list, request.page_token) ?? [FIRST_ID];
    const replies = await deps.store.drops.replies(dropId, after, size + 1);
    if (replies.length === 0 && !isUri(dropId)) await findDrop(deps, dropId);
    const { items, nextPageToken } = deps.tokens.page(list, replies, size, (reply) => [reply.dropId]);
    return { replies: items.map(presentDetails), next_page_token: nextPageToken };
  };
