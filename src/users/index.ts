import type { Logger } from "../kernel/logger.js";
import type { PageTokens } from "../kernel/paging.js";
import type { Db } from "../platform/db/db.js";
import type { Scripts } from "../platform/redis/scripts.js";
import { createApplyEdges, HOT_LANE, NORMAL_LANE } from "./apply-edges.js";
import { createBounded } from "./bounded.js";
import { createListCache, createProfileCache, MAX_CACHED_IDS } from "./cache.redis.js";
import type { UsersConfig } from "./config.js";
import { createApplyBatch, createReadCurrentFollowers } from "./followers.sql.js";
import { createFollowStore } from "./follows.sql.js";
import { createHotPages } from "./hot-pages.js";
import { createReadList } from "./lists.js";
import { createEdgeStore, createListStore } from "./lists.sql.js";
import { startMaintenance } from "./maintenance.js";
import { createMaintenanceStore } from "./maintenance.sql.js";
import { observeUsers } from "./observe.js";
import { createPrepareUserEvents } from "./prepare.js";
import { createProfileStore } from "./profiles.sql.js";
import { createIsHot } from "./rates.js";
import { createUsersService } from "./service.grpc.js";

/** They need the migrations of the outbox. */
export const USERS_MIGRATIONS = { component: "users", folder: new URL("./migrations/", import.meta.url) };

const MAX_WAITING_READS = 10_000;

export interface UsersStores {
  readonly db: Db;
  readonly scripts: Scripts;
  readonly log: Logger;
}

/** The function that the outbox runs before it publishes events of the users service. */
export const prepareUserEvents = ({ db, scripts, log }: UsersStores, hotUserRate: number) =>
  createPrepareUserEvents({
    cache: createListCache(scripts),
    readCurrentFollowers: createReadCurrentFollowers(db),
    isHot: createIsHot(hotUserRate),
    observe: observeUsers,
    log,
  });

export interface UsersOptions extends UsersStores {
  readonly tokens: PageTokens;
  readonly config: UsersConfig;
  /** Database queries of reads at once. */
  readonly readsAtOnce: number;
  readonly wakeRelay: () => void;
}

/** Starts the users service and its maintenance, on a migrated database. */
export function startUsers({ db, scripts, tokens, config, readsAtOnce, wakeRelay, log }: UsersOptions) {
  const observe = observeUsers;
  const cache = createListCache(scripts);
  const bounded = createBounded({ atOnce: readsAtOnce, waiting: MAX_WAITING_READS });
  const store = createListStore(db);
  const pages = createHotPages();
  const service = createUsersService(
    {
      follows: createFollowStore(db),
      cache,
      maxFollowing: config.maxFollowing,
      wakeRelay,
      tokens,
      readList: createReadList({ store, cache, pages, bounded, maxCachedIds: MAX_CACHED_IDS, observe }),
      edges: createEdgeStore(db),
      profiles: createProfileStore(db),
      profileCache: createProfileCache(scripts),
      bounded,
      observe,
    },
    log,
  );
  const applying = { apply: createApplyBatch(db), wakeRelay, observe };
  const maintenance = startMaintenance({ store: createMaintenanceStore(db), log, observe });
  return {
    service,
    applyEdges: { normal: createApplyEdges(applying, NORMAL_LANE), hot: createApplyEdges(applying, HOT_LANE) },
    close: maintenance.close,
  };
}
