import type { ListDropsRequest, ListDropsResponse } from "../gen/avion/posts.js";
import { pageOf, readSize, readTime, readToken } from "../kernel/paging.js";
import type { PostsDeps } from "./deps.js";
import { CHANGE_PAGES } from "./limits.js";
import { presentListed } from "./present.js";

const LIST = "drops";

/**
 * Drops by the time of their last change, oldest first. A foreign drop listed here would be admitted as one of this
 * server's own and show in the local timeline; its deletion is true everywhere.
 */
export const listDrops =
  ({ store }: PostsDeps) =>
  async (request: ListDropsRequest): Promise<ListDropsResponse> => {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
    const size = readSize("page_size", request.page_size, CHANGE_PAGES);
    const after = readToken<[number, string]>(LIST, request.page_token) ?? ([since, ""] as const);
    const changed = await store.drops.changes({ since, until, after }, size + 1);
    const { items, nextPageToken } = pageOf(LIST, changed, size, (drop) => [drop.changedAt, drop.dropId]);
    return { drops: items.map(presentListed), next_page_token: nextPageToken };
  };
