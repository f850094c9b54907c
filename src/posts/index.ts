import { withSpelling } from "../contracts/spellings.js";
import { refusingSuspended } from "../contracts/standings.js";
import { PostServiceService } from "../gen/avion/posts.js";
import type { Logger } from "../kernel/logger.js";
import type { PageTokens } from "../kernel/paging.js";
import { sharedNow } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import { type Service, unaryService } from "../platform/grpc/unary.js";
import type { Standings, State } from "../state/index.js";
import type { Users } from "../upstreams/upstreams.grpc.js";
import type { PostsConfig } from "./config.js";
import { type ActivitiesDeps, activities } from "./documents/activities.js";
import { resolveUris } from "./documents/resolve-uri.js";
import { createDropIds } from "./drops/ids.js";
import { readDrops } from "./drops/read-drops.js";
import { threads } from "./drops/thread.js";
import { timelineReads } from "./drops/timeline-reads.js";
import { userDrops } from "./drops/user-drops.js";
import { writeDrops } from "./drops/write-drops.js";
import { createForget } from "./erasure.js";
import { startMaintenance } from "./maintenance.js";
import { lists } from "./reactions/lists.js";
import { createCountEngagement, reactToDrops } from "./reactions/reactions.js";
import { removeReposts, repostDrops, withdrawShare } from "./reactions/reposts.js";
import { parentKey } from "./reactions/targets.js";
import {
  createEraseUser,
  createFollowedAmong,
  createFollowersOf,
  createProfileOf,
  createRelationsTo,
  createSetApproval,
} from "./relations.grpc.js";
import { createFetcher } from "./remote/fetch.http.js";
import { remoteObjects } from "./remote/remote-objects.js";
import { remoteReactions } from "./remote/remote-reactions.js";
import { webfinger } from "./remote/webfinger.js";
import { createPostsStore, type PostsStore } from "./store.sql.js";

/** The migrations of the outbox are applied before. */
export const POSTS_MIGRATIONS = { component: "posts", folder: new URL("./migrations/", import.meta.url) };

export interface PostsDeps extends ActivitiesDeps {
  readonly store: PostsStore;
  /** Default: nobody is limited or suspended. */
  readonly standingOf?: Standings["of"];
}

/** A suspended user, or actor, can call none of these. What another server deletes is deleted all the same. */
const WRITES = [
  ...["createDrop", "editDrop", "deleteDrop", "likeDrop", "unlikeDrop", "shareDrop", "unshareDrop"],
  ...["putRemoteObject", "putRemoteReaction"],
] as const;

export interface PostsOptions {
  readonly db: Db;
  readonly state: Pick<State, "limits" | "standings">;
  /** Without a UserService drops for followers are shown to their author only, and nobody is blocked. */
  readonly users: Users | undefined;
  readonly tokens: PageTokens;
  readonly config: PostsConfig;
  readonly wakeRelay: PostsDeps["wakeRelay"];
  readonly waitingEvents: () => number;
  readonly log: Logger;
}

export function createPostsService(deps: PostsDeps, log: Logger): Service {
  const nextId = createDropIds();
  const writes = writeDrops(deps, nextId, {
    parentKey: (replyTo) => parentKey(deps, replyTo),
    withdrawShare: (share) => withdrawShare(deps, share),
    removeReposts: (original) => removeReposts(deps, original),
  });
  const drops = { ...timelineReads(deps), ...readDrops(deps), ...userDrops(deps), ...threads(deps), ...writes };
  const others = {
    ...lists(deps),
    ...reactToDrops(deps),
    ...repostDrops(deps, nextId),
    ...remoteObjects(deps),
    ...remoteReactions(deps),
  };
  const names = { ...webfinger(deps), ...resolveUris(deps), ...activities(deps) };
  const { standingOf = () => "active" } = deps;
  const methods = refusingSuspended({ ...drops, ...others, ...names }, WRITES, standingOf);
  return unaryService(PostServiceService, withSpelling(methods, deps.store.remote.storedAmong), log);
}

const userAgentOf = ({ publicUrl }: PostsConfig): string =>
  publicUrl === undefined ? "avion-timeline" : `avion-timeline (+${publicUrl})`;

/** Starts the posts service and its maintenance, on a migrated database. */
export function startPosts({ db, state, users, tokens, config, wakeRelay, waitingEvents, log }: PostsOptions) {
  const store = createPostsStore(db);
  const now = sharedNow;
  const { retentionDays, maxWaitingEvents } = config;
  const [followedAmong, relationsTo] = [createFollowedAmong(users), createRelationsTo(users)];
  const isFull = () => maxWaitingEvents > 0 && waitingEvents() > maxWaitingEvents;
  const limits = state.limits.openWrites();
  const eraseUser = createEraseUser(users);
  const standingOf = state.standings.of;
  const asked = {
    standingOf,
    isSuspended: (user: string) => standingOf(user) === "suspended",
    followedAmong,
    relationsTo,
    profileOf: createProfileOf(users),
    followersOf: createFollowersOf(users),
    eraseUser,
    setApproval: createSetApproval(users),
  };
  const fetcher = config.fetch ? createFetcher({ userAgent: userAgentOf(config) }) : undefined;
  const deps = { ...asked, store, tokens, config, now, isFull, limited: limits.limited, wakeRelay, fetcher, log };
  const maintenance = startMaintenance({ store, eraseUser, now, retentionDays, config, log });
  return {
    service: createPostsService(deps, log),
    countEngagement: createCountEngagement(store.reactions),
    forget: createForget({ store, wakeRelay, config, now }),
    notReady: maintenance.notReady,
    close: async () => void (await Promise.all([maintenance.close(), limits.close()])),
  };
}
