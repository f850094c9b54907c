import type { ListFollowChangesRequest, ListFollowChangesResponse } from "../gen/avion/users.js";
import { type PageTokens, readSize, readTime } from "../kernel/paging.js";
import type { Bounded } from "./bounded.js";
import { ID_PAGES } from "./input.js";
import type { DatedEdge, EdgeStore } from "./ports.js";

type Position = [changedAt: number, following: string, follower: string];

/**
 * ListFollowChanges: edges by when both lists came to show their last change.
 *
 * @throws AppError `invalid` naming the field
 */
export function listFollowChanges({
  edges,
  bounded,
  tokens,
}: {
  readonly edges: EdgeStore;
  readonly bounded: Bounded;
  readonly tokens: PageTokens;
}): (request: ListFollowChangesRequest) => Promise<ListFollowChangesResponse> {
  return async (request) => {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || undefined;
    const size = readSize("page_size", request.page_size, ID_PAGES);
    const list = ["follow-changes", request.since, request.until] as const;
    const after = tokens.read<Position>(list, request.page_token);
    const found = await bounded(() => edges.changes({ since, until }, after, size + 1));
    const { items, nextPageToken } = tokens.page(list, found, size, positionOf);
    return { changes: items.map(present), next_page_token: nextPageToken };
  };
}

const positionOf = ({ changedAt, following, follower }: DatedEdge): Position => [changedAt, following, follower];

const present = ({ follower, following, version, active, changedAt }: DatedEdge) => ({
  follower_id: follower,
  following_id: following,
  version,
  following: active,
  changed_at: changedAt,
});
