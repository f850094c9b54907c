import type { GetFollowingListRequest, GetFollowingListResponse } from "../gen/avion/users.js";
import { type PageTokens, readSize } from "../kernel/paging.js";
import { ID_PAGES, readIdToken, readUserId } from "./input.js";
import type { ReadList } from "./lists.js";
import type { ListName } from "./ports.js";

/**
 * GetFollowingList and GetFollowersList, by the bytes of the ids: exact whatever is followed meanwhile. A user nobody
 * knows has empty lists.
 *
 * @throws AppError `invalid` naming the field
 */
export function getList(
  { readList, tokens }: { readonly readList: ReadList; readonly tokens: PageTokens },
  list: ListName,
): (request: GetFollowingListRequest) => Promise<GetFollowingListResponse> {
  return async ({ user_id, page_size, page_token }) => {
    const user = readUserId("user_id", user_id);
    const size = readSize("page_size", page_size, ID_PAGES);
    const name = [list, user] as const;
    const after = readIdToken(tokens, name, page_token);
    const { ids, total } = await readList({ list, user, after, limit: size + 1 });
    const { items, nextPageToken } = tokens.page(name, ids, size, (id) => [id]);
    return { user_ids: [...items], next_page_token: nextPageToken, total_count: total };
  };
}
