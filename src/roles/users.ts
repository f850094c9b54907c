import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { CALM_LANE, createApplyEdges, HOT_LANE } from "../users/apply-edges.js";
import { createBounded } from "../users/bounded.js";
import { createListCache, createProfileCache, MOST_REMEMBERED } from "../users/cache.redis.js";
import { createApplyBatch, createReadFollowersNow } from "../users/followers.sql.js";
import { createFollowStore } from "../users/follows.sql.js";
import { createHotPages } from "../users/hot-pages.js";
import { createReadList } from "../users/lists.js";
import { createEdgeStore, createListStore } from "../users/lists.sql.js";
import { observeUsers } from "../users/observe.js";
import { createPrepareUserEvents } from "../users/prepare.js";
import { createProfileStore } from "../users/profiles.sql.js";
import { createIsHot } from "../users/rates.js";
import { createUsersService } from "../users/service.grpc.js";
import { startUpkeep } from "../users/upkeep.js";
import { createUpkeepStore } from "../users/upkeep.sql.js";
import { startConsumer } from "./consumers.js";
import { openPageTokens } from "./page-tokens.js";
import { type Relaying, startRelaying } from "./relaying.js";
import type { RunningRole, StoringRoleDeps } from "./role.js";

/** Edges in hand at once: they are applied together. */
const CALM_AT_ONCE = 1_000;
const HOT_AT_ONCE = 2_000;

/** Reads that a database without a cache before it is asked to do. */
const READS_WAITING = 10_000;

/** The follow graph: the service, its outbox, and the building of the follower lists. */
export async function startUsersRole(deps: StoringRoleDeps): Promise<RunningRole> {
  const { config, connections, db, log } = deps;
  const cache = createListCache(connections.scripts);
  const prepare = createPrepareUserEvents({
    cache,
    readFollowersNow: createReadFollowersNow(db),
    isHot: createIsHot(config.users.hotUserRate),
    observe: observeUsers,
    log,
  });
  const relaying = await startRelaying(deps, "users", prepare);
  const upkeep = startUpkeep({ store: createUpkeepStore(db), log, observe: observeUsers });
  const consuming = startLanes(deps, relaying);
  // The other half is for writes, so that they go on while Redis is away and every read comes here.
  const bounded = createBounded({
    atOnce: Math.ceil(config.database.poolSize / 2),
    waiting: READS_WAITING,
  });
  const service = createUsersService(
    {
      follows: createFollowStore(db),
      cache,
      maxFollowing: config.users.maxFollowing,
      wakeRelay: relaying.wake,
      tokens: await openPageTokens(db, "users", log),
      readList: createReadList({
        store: createListStore(db),
        cache,
        pages: createHotPages(),
        bounded,
        mostRemembered: MOST_REMEMBERED,
        observe: observeUsers,
      }),
      edges: createEdgeStore(db),
      profiles: createProfileStore(db),
      profileCache: createProfileCache(connections.scripts),
      bounded,
      observe: observeUsers,
    },
    log,
  );
  return {
    services: [service],
    notReady: () =>
      relaying.notReady() ?? (consuming.every((one) => one.healthy()) ? undefined : "users: edges are not pulled"),
    close: async (graceMs) => {
      await Promise.all([upkeep.close(), ...consuming.map((one) => one.close(graceMs))]);
      // Last: what the others wrote until now is published.
      await relaying.close();
    },
  };
}

function startLanes(deps: StoringRoleDeps, { wake }: Relaying) {
  const applying = { apply: createApplyBatch(deps.db), wakeRelay: wake, observe: observeUsers };
  const { edges: stream } = STREAM;
  return [
    startConsumer(deps, {
      stream,
      consumer: CONSUMER.edges,
      handler: createApplyEdges(applying, CALM_LANE),
      concurrency: CALM_AT_ONCE,
    }),
    startConsumer(deps, {
      stream,
      consumer: CONSUMER.hotEdges,
      handler: createApplyEdges(applying, HOT_LANE),
      concurrency: HOT_AT_ONCE,
    }),
  ];
}
