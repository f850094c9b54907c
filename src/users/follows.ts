import type { UsersSource } from "../contracts/outbox.js";
import type * as wire from "../gen/avion/users.js";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { AppError, codeOf, invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { type PageLimits, type PageTokens, readTime } from "../kernel/paging.js";
import type { Limit } from "../kernel/variables.js";
import type { Limited, ListCache, ListName } from "../state/index.js";
import { traceHeaders } from "../telemetry/spans.js";
import type { Pair } from "./edges.js";
import type { ChangePosition, EdgeStore } from "./edges.sql.js";
import type { ReadList } from "./lists.js";
import { observeUsers } from "./observe.js";
import { type DatedList, type DatedPosition, NEWEST, type ReadDated } from "./reads.sql.js";

export interface FollowsDeps {
  readonly cache: Pick<ListCache, "discard">;
  readonly maxFollowing: number;
  readonly limitFollows: Limit | undefined;
  readonly limited: Limited;
  readonly wakeRelay: (source: UsersSource) => void;
  readonly readList: ReadList;
  readonly readDated: ReadDated;
  readonly edges: EdgeStore;
  readonly bounded: BoundedQueue;
  readonly tokens: PageTokens;
}

// Each method throws an AppError: `invalid` naming the field, `exhausted` if a user would follow too many, or too fast,
// `conflict` if a block forbids a follow or a user is erased.

const MAX_PAIRS = 1_000;

export const changeFollows = (deps: FollowsDeps) => ({
  follow: setFollowing(deps, true),
  unfollow: setFollowing(deps, false),
  acceptFollow: answerFollower(deps, true),
  rejectFollow: answerFollower(deps, false),
  removeFollower: answerFollower(deps, false),

  async followMany({ follows }: wire.FollowManyRequest): Promise<wire.FollowManyResponse> {
    if (follows.length > MAX_PAIRS) throw invalid("follows", `must have at most ${MAX_PAIRS} entries`);
    const pairs = follows.map((follow, index) =>
      refuseSelf(`follows.${index}.`, readPair(`follows.${index}.`, follow)),
    );
    if (pairs.length === 0) return { changed: 0, pending: 0 };
    const most = deps.maxFollowing;
    const done = await deps.edges.followMany(pairs, { most, traceparent: traceHeaders()["traceparent"] });
    if ("over" in done) {
      const index = pairs.findIndex(({ follower_id }) => follower_id === done.over);
      throw new AppError("exhausted", `follows.${index}.following_id: a user can follow at most ${most} others`);
    }
    observeUsers.followed("request", done.pending);
    if (done.pending > 0) deps.wakeRelay("requests");
    if (done.changed > 0) {
      observeUsers.followed("follow", done.changed);
      await afterChange(deps, [...new Set(pairs.map(({ follower_id }) => follower_id))]);
    }
    return done;
  },
});

/** The follower's list is up to date before this resolves, unless Redis is unavailable. */
const setFollowing =
  (deps: FollowsDeps, wanted: boolean) =>
  async (request: Pair & { readonly replaces?: string }): Promise<wire.FollowResponse> => {
    const pair = readPair("", request);
    if (wanted) refuseSelf("", pair);
    const traceparent = traceHeaders()["traceparent"];
    const replaced = request.replaces ? await replace(deps, { ...pair, replaced: request.replaces, traceparent }) : 0;
    const write = () => deps.edges.setFollowing({ ...pair, wanted, most: deps.maxFollowing, traceparent });
    const done = wanted ? await limitedFollow(deps, pair, write) : await write();
    if (replaced > 0) await afterChange(deps, [pair.follower_id]);
    const { version, pending } = await changeMade(deps, pair.follower_id, { wanted, done });
    return { changed: done.changed || replaced > 1, version, pending };
  };

/** Accepts a request, or removes a request or a follower. Neither is limited. */
const answerFollower =
  (deps: FollowsDeps, accepts: boolean) =>
  async ({ user_id, follower_id }: wire.AcceptFollowRequest): Promise<wire.AcceptFollowResponse> => {
    const pair = { follower_id: readId("follower_id", follower_id), following_id: readId("user_id", user_id) };
    if (accepts && user_id === follower_id) throw invalid("follower_id", "must not be the user");
    const { maxFollowing: most, edges } = deps;
    const edge = { ...pair, wanted: accepts, accepts, most, traceparent: traceHeaders()["traceparent"] };
    const done = await edges.setFollowing(edge, "user_id").catch((error: unknown) => {
      throw codeOf(error) === "exhausted" ? new AppError("exhausted", `follower_id: follows ${most} others`) : error;
    });
    const { changed, version } = await changeMade(deps, follower_id, { wanted: accepts, done });
    return { changed, version };
  };

type EdgeSet = Awaited<ReturnType<EdgeWrite>>;

async function changeMade(
  deps: FollowsDeps,
  follower: string,
  { wanted, done }: { readonly wanted: boolean; readonly done: EdgeSet },
): Promise<EdgeSet> {
  if (done.moved) {
    observeUsers.followed(wanted ? "follow" : "unfollow", 1);
    await afterChange(deps, [follower]);
  } else if (done.changed) {
    observeUsers.followed(wanted ? "request" : "withdrawal", 1);
    deps.wakeRelay("requests");
  }
  return done;
}

interface Replacement extends Pair {
  readonly replaced: string;
  readonly traceparent: string | undefined;
}

/** Resolves to the number of changed edges: 0 if the follow to replace does not exist. */
async function replace(deps: FollowsDeps, { replaced, traceparent, ...pair }: Replacement): Promise<number> {
  const { edges, bounded, limited, limitFollows: limit, maxFollowing: most } = deps;
  const { follower_id: user } = pair;
  readId("replaces", replaced);
  if (replaced === pair.following_id) throw invalid("replaces", "must not be the user who is followed");
  const isNone = async (): Promise<boolean> => (await bounded(() => edges.followed(user, [replaced]))).size === 0;
  if (await isNone()) return 0;
  // A follow that is replaced again and again would reach any number of people: replacements count by themselves.
  const changed = await limited([{ kind: "follows", user, subject: "replaced", limit }], {
    write: () => edges.replace({ ...pair, most, traceparent }, replaced),
    changed: (edgesChanged) => edgesChanged > 0,
    changesNothing: isNone,
  });
  if (changed > 0) observeUsers.followed("unfollow", 1);
  if (changed > 1) observeUsers.followed("follow", 1);
  return changed;
}

const limitedFollow = (deps: FollowsDeps, { follower_id: user, following_id }: Pair, write: EdgeWrite) =>
  deps.limited([{ kind: "follows", user, limit: deps.limitFollows }], {
    write,
    changed: ({ changed }) => changed,
    changesNothing: () => deps.bounded(() => deps.edges.stands({ follower_id: user, following_id })),
  });

type EdgeWrite = () => ReturnType<EdgeStore["setFollowing"]>;

const readPair = (prefix: string, { follower_id, following_id }: Pair): Pair => ({
  follower_id: readId(`${prefix}follower_id`, follower_id),
  following_id: readId(`${prefix}following_id`, following_id),
});

function refuseSelf(prefix: string, pair: Pair): Pair {
  if (pair.follower_id === pair.following_id) throw invalid(`${prefix}following_id`, "must not be the follower");
  return pair;
}

/** Removes the followers' cached lists; while Redis is unavailable, the relay does so before it publishes the events. */
export async function afterChange(
  deps: Pick<FollowsDeps, "cache" | "wakeRelay">,
  followers: readonly string[],
): Promise<void> {
  deps.wakeRelay("edges");
  deps.wakeRelay("requests");
  const discarded = await Promise.allSettled(followers.map((follower) => deps.cache.discard("following", follower)));
  if (discarded.some(({ status }) => status === "rejected")) observeUsers.cacheFailed("following");
}

const ID_PAGES: PageLimits = { default: 1_000, max: 5_000 };
const DATED_PAGES: PageLimits = { default: 1_000, max: 1_000 };
const MAX_IDS = 1_000;

export const readFollows = (deps: FollowsDeps) => ({
  getFollowingList: getList(deps, "following"),
  getFollowersList: getList(deps, "followers"),
  listFollowing: listDated(deps, "following"),
  listFollowers: listDated(deps, "followers"),

  async listFollowRequests(request: wire.ListFollowRequestsRequest): Promise<wire.ListFollowRequestsResponse> {
    const { items, next_page_token } = await datedPage(deps, "requests", request);
    return { requests: items, next_page_token };
  },

  async getFollowCounts({ user_id }: wire.GetFollowCountsRequest): Promise<wire.GetFollowCountsResponse> {
    const user = readId("user_id", user_id);
    const [following, followers] = await Promise.all([
      deps.readList({ list: "following", user, after: "", limit: 0 }),
      deps.readList({ list: "followers", user, after: "", limit: 0 }),
    ]);
    return { following: following.total, followers: followers.total };
  },

  async isFollowing({ follower_id, following_ids }: wire.IsFollowingRequest): Promise<wire.IsFollowingResponse> {
    const user = readId("follower_id", follower_id);
    if (following_ids.length > MAX_IDS) throw invalid("following_ids", `must have at most ${MAX_IDS} entries`);
    for (const [index, id] of following_ids.entries()) readId(`following_ids.${index}`, id);
    if (following_ids.length === 0) return { following: [] };
    const followed = await deps.bounded(() => deps.edges.followed(user, following_ids));
    return { following: following_ids.map((id) => followed.has(id)) };
  },

  /** Edges are sorted by the time at which both lists contained their last change. */
  async listFollowChanges(request: wire.ListFollowChangesRequest): Promise<wire.ListFollowChangesResponse> {
    const since = readTime("since", request.since);
    const until = readTime("until", request.until) || Number.MAX_SAFE_INTEGER;
    const page = deps.tokens.open<ChangePosition>(["follow-changes", request.since, request.until], request, ID_PAGES);
    const rows = await deps.bounded(() => deps.edges.changes(page.after ?? [since, "", ""], until, page.limit));
    const { items, next_page_token } = page.pageOf(rows, (edge) => [
      edge.changed_at,
      edge.following_id,
      edge.follower_id,
    ]);
    return { changes: items, next_page_token };
  },
});

/** The list is sorted by the bytes of the ids, so that paging is exact while users follow. */
const getList =
  ({ readList, tokens }: FollowsDeps, list: ListName) =>
  async (request: wire.GetFollowingListRequest): Promise<wire.GetFollowingListResponse> => {
    const user = readId("user_id", request.user_id);
    const page = tokens.open<[string]>([list, user], request, ID_PAGES);
    const [after] = page.after ?? [""];
    const { ids, total } = await readList({ list, user, after, limit: page.limit });
    const { items, next_page_token } = page.pageOf(ids, (id) => [id]);
    return { user_ids: items, next_page_token, total_count: total };
  };

const listDated =
  (deps: FollowsDeps, list: ListName) =>
  async (request: wire.ListFollowingRequest): Promise<wire.ListFollowingResponse> => {
    const { items, next_page_token } = await datedPage(deps, list, request);
    return { follows: items, next_page_token };
  };

/** Newest first: a follow that begins meanwhile is on no later page, and one that stays is on exactly one. */
async function datedPage(
  { readDated, tokens, bounded }: FollowsDeps,
  list: DatedList,
  request: wire.ListFollowingRequest,
): Promise<{ readonly items: wire.DatedFollow[]; readonly next_page_token: string }> {
  const user = readId("user_id", request.user_id);
  const page = tokens.open<DatedPosition>([`dated-${list}`, user], request, DATED_PAGES);
  const rows = await bounded(() => readDated(list, user, page.after ?? NEWEST, page.limit));
  return page.pageOf(rows, ({ since, user_id }) => [since, user_id]);
}
