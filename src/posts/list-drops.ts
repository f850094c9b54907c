import type { GetRetentionResponse, ListDropsRequest, ListDropsResponse } from "../gen/avion/posts.js";
import { readSize, readTime } from "../kernel/paging.js";
import type { PostsDeps } from "./deps.js";
import { presentListed } from "./present.js";
import { CHANGE_PAGES } from "./request.js";

/**
 * By the time of the last change, oldest first. Of foreign drops only deletions are listed: a foreign drop would be
 * admitted as one of this server's and appear in the local timeline.
 */
export const listDrops =
  ({ store, tokens }: PostsDeps) =>
  async (request: ListDropsRequest): Promise<ListDropsResponse> => {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
    const size = readSize("page_size", request.page_size, CHANGE_PAGES);
    const list = ["drops", request.since, request.until] as const;
    const after = tokens.read<[number, string]>(list, request.page_token) ?? ([since, ""] as const);
    const changed = await store.drops.changes({ since, until, after }, size + 1);
    const { items, nextPageToken } = tokens.page(list, changed, size, (drop) => [drop.changedAt, drop.dropId]);
    return { drops: items.map(presentListed), next_page_token: nextPageToken };
  };

export const getRetention =
  ({ store }: PostsDeps) =>
  async (): Promise<GetRetentionResponse> => ({ kept_since: await store.retention.start() });
