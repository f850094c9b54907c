import type * as wire from "../gen/avion/users.js";
import { invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { type PageLimits, type PageTokens, readSize, readTime } from "../kernel/paging.js";
import type { Bounded } from "./bounded.js";
import type { ReadList } from "./lists.js";
import type { DatedEdge, EdgeStore, ListName } from "./lists.sql.js";

export interface ReadFollowsDeps {
  readonly readList: ReadList;
  readonly edges: EdgeStore;
  readonly bounded: Bounded;
  readonly tokens: PageTokens;
}

const ID_PAGES: PageLimits = { usual: 1_000, most: 5_000 };
const MAX_IDS = 1_000;

// Each method throws an AppError `invalid` that names the field.

/** By the bytes of the ids, so that paging is exact while users follow. An unknown user has empty lists. */
export function getList({ readList, tokens }: ReadFollowsDeps, list: ListName) {
  return async (request: wire.GetFollowingListRequest): Promise<wire.GetFollowingListResponse> => {
    const { user_id, page_size, page_token } = request;
    const user = readId("user_id", user_id);
    const size = readSize("page_size", page_size, ID_PAGES);
    const name = [list, user] as const;
    const [after] = tokens.read<[string]>(name, page_token) ?? [""];
    const { ids, total } = await readList({ list, user, after, limit: size + 1 });
    const { items, nextPageToken } = tokens.page(name, ids, size, (id) => [id]);
    return { user_ids: [...items], next_page_token: nextPageToken, total_count: total };
  };
}

export function getFollowCounts({ readList }: ReadFollowsDeps) {
  return async ({ user_id }: wire.GetFollowCountsRequest): Promise<wire.GetFollowCountsResponse> => {
    const user = readId("user_id", user_id);
    const [following, followers] = await Promise.all([
      readList({ list: "following", user, after: "", limit: 0 }),
      readList({ list: "followers", user, after: "", limit: 0 }),
    ]);
    return { following: following.total, followers: followers.total };
  };
}

export function isFollowing({ edges, bounded }: ReadFollowsDeps) {
  return async ({ follower_id, following_ids }: wire.IsFollowingRequest): Promise<wire.IsFollowingResponse> => {
    const user = readId("follower_id", follower_id);
    if (following_ids.length > MAX_IDS) throw invalid("following_ids", `must be at most ${MAX_IDS}`);
    following_ids.forEach((id, index) => {
      readId(`following_ids.${index}`, id);
    });
    if (following_ids.length === 0) return { following: [] };
    const followed = await bounded(() => edges.followed(user, following_ids));
    return { following: following_ids.map((id) => followed.has(id)) };
  };
}

type Position = [changedAt: number, following: string, follower: string];

/** Edges by the time at which both lists contained their last change. */
export function listFollowChanges({ edges, bounded, tokens }: ReadFollowsDeps) {
  return async (request: wire.ListFollowChangesRequest): Promise<wire.ListFollowChangesResponse> => {
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
