import { withSpelling } from "../contracts/spellings.js";
import { PostServiceService } from "../gen/avion/posts.js";
import type { Logger } from "../kernel/logger.js";
import type { PageTokens } from "../kernel/paging.js";
import { sharedNow } from "../kernel/time.js";
import type { Db } from "../platform/db/db.js";
import type { Service } from "../platform/grpc/unary.js";
import { unaryService } from "../platform/grpc/unary.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { createLimits } from "../state/limits/limits.redis.js";
import type { Users } from "../upstreams/upstreams.grpc.js";
import { activities } from "./activities.js";
import type { PostsConfig } from "./config.js";
import type { PostsDeps } from "./drops.js";
import { createForget } from "./erasure.js";
import { createFetcher } from "./fetch.http.js";
import { createDropIds } from "./ids.js";
import { lists } from "./lists.js";
import { startMaintenance } from "./maintenance.js";
import { createCountEngagement, reactToDrops } from "./reactions.js";
import { readDrops } from "./read-drops.js";
import {
  createEraseUser,
  createFollowedAmong,
  createFollowersOf,
  createProfileOf,
  createRelationsTo,
} from "./relations.grpc.js";
import { remoteObjects } from "./remote-objects.js";
import { remoteReactions } from "./remote-reactions.js";
import { repostDrops } from "./reposts.js";
import { resolveUris } from "./resolve-uri.js";
import { createPostsStore } from "./store.sql.js";
import { timelineReads } from "./timeline-reads.js";
import { webfinger } from "./webfinger.js";
import { writeDrops } from "./write-drops.js";

/** They need the migrations of the outbox. */
export const POSTS_MIGRATIONS = { component: "posts", folder: new URL("./migrations/", import.meta.url) };

export interface PostsOptions {
  readonly db: Db;
  readonly scripts: Scripts;
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
  const drops = { ...timelineReads(deps), ...readDrops(deps), ...writeDrops(deps, nextId), ...lists(deps) };
  const others = {
    ...reactToDrops(deps),
    ...repostDrops(deps, nextId),
    ...remoteObjects(deps),
    ...remoteReactions(deps),
  };
  const names = { ...webfinger(deps), ...resolveUris(deps), ...activities(deps) };
  const methods = withSpelling({ ...drops, ...others, ...names }, deps.store.remote.storedAmong);
  return unaryService(PostServiceService, methods, log);
}

const userAgentOf = ({ publicUrl }: PostsConfig): string =>
  publicUrl === undefined ? "avion-timeline" : `avion-timeline (+${publicUrl})`;

/** Starts the posts service and its maintenance, on a migrated database. */
export function startPosts({ db, scripts, users, tokens, config, wakeRelay, waitingEvents, log }: PostsOptions) {
  const store = createPostsStore(db);
  const now = sharedNow;
  const { retentionDays, maxWaitingEvents } = config;
  const [followedAmong, relationsTo] = [createFollowedAmong(users), createRelationsTo(users)];
  const isFull = () => maxWaitingEvents > 0 && waitingEvents() > maxWaitingEvents;
  const limits = createLimits(scripts);
  const eraseUser = createEraseUser(users);
  const asked = {
    followedAmong,
    relationsTo,
    profileOf: createProfileOf(users),
    followersOf: createFollowersOf(users),
    eraseUser,
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
