import type { ListFollowChangesRequest, ListFollowChangesResponse } from "../gen/avion/users.js";
import { pageOf, readSize, readTime, readToken } from "../kernel/paging.js";
import type { Bounded } from "./bounded.js";
import { ID_PAGES, readKeyPart } from "./input.js";
import type { DatedEdge, EdgeStore } from "./ports.js";

const LIST = "follow-changes";

type Position = [changedAt: number, following: string, follower: string];

/**
 * ListFollowChanges: edges by when both lists came to show their last change.
 *
 * @throws AppError `invalid` naming the field
 */
export function listFollowChanges({
  edges,
  bounded,
}: {
  readonly edges: EdgeStore;
  readonly bounded: Bounded;
}): (request: ListFollowChangesRequest) => Promise<ListFollowChangesResponse> {
  return async (request) => {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || undefined;
    const size = readSize("page_size", request.page_size, ID_PAGES);
    const after = readPosition(request.page_token);
    const found = await bounded(() => edges.changes({ since, until }, after, size + 1));
    const { items, nextPageToken } = pageOf(LIST, found, size, positionOf);
    return { changes: items.map(present), next_page_token: nextPageToken };
  };
}

const positionOf = ({ changedAt, following, follower }: DatedEdge): Position => [changedAt, following, follower];

function readPosition(token: string): Position | undefined {
  const position = readToken<Position>(LIST, token);
  if (position === undefined) return undefined;
  const [changedAt, following, follower] = position;
  return [readTime("page_token", changedAt), readKeyPart(following), readKeyPart(follower)];
}

const present = ({ follower, following, version, active, changedAt }: DatedEdge) => ({
  follower_id: follower,
  following_id: following,
  version,
  following: active,
  changed_at: changedAt,
});
