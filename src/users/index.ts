import type { UsersSource } from "../contracts/outbox.js";
import { withSpelling } from "../contracts/spellings.js";
import { refusingSuspended } from "../contracts/standings.js";
import { ListServiceService } from "../gen/avion/lists.js";
import { UserServiceService } from "../gen/avion/users.js";
import { createBoundedQueue } from "../kernel/concurrency.js";
import { AppError } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import type { PageTokens } from "../kernel/paging.js";
import type { Db } from "../platform/db/db.js";
import { untilOlderEnded } from "../platform/db/older-transactions.js";
import { type Service, unaryService } from "../platform/grpc/unary.js";
import { MAX_CACHED_IDS, type Standings, type State } from "../state/index.js";
import { createApprovalStore } from "./approvals.sql.js";
import type { UsersConfig } from "./config.js";
import { CALM_LANE, createApplyEdges, HOT_LANE } from "./edges.js";
import { createEdgeStore } from "./edges.sql.js";
import { type ErasureMethodsDeps, erasureMethods } from "./erasure-methods.js";
import { createErasureRows } from "./erasure-rows.sql.js";
import { type ErasuresDeps, startCompletingUnknown, startErasures } from "./erasures.js";
import { createErasureStore } from "./erasures.sql.js";
import { changeFollows, type FollowsDeps, readFollows } from "./follows.js";
import { createReadList } from "./lists.js";
import { startAccepting, startEndingMutes, startMaintenance } from "./maintenance.js";
import { createMaintenanceStore } from "./maintenance.sql.js";
import { changeMemberLists, type MemberListsDeps, readMemberLists } from "./member-lists.js";
import { createMemberListStore } from "./member-lists.sql.js";
import { createIsHot, createPrepareUserEvents } from "./prepare.js";
import { type ProfileDeps, profiles } from "./profiles.js";
import { createListStore, createProfileStore, createReadDated } from "./reads.sql.js";
import { changeRelations, type RelationsDeps, readRelations } from "./relation-methods.js";
import { createRelationReads } from "./relation-reads.sql.js";
import { createRelationStore } from "./relations.sql.js";
import { type StandingsDeps, standings } from "./standings.js";
import { createStandingStore } from "./standings.sql.js";

/** Migrations of the users service. They need those of the outbox. */
export const USERS_MIGRATIONS = { component: "users", folder: new URL("./migrations/", import.meta.url) };

const MAX_WAITING_READS = 10_000;

/** Follower changes a second above which those of a user are applied in a lane of their own, so that others do not wait. */
const HOT_USER_RATE = 200;

export const prepareUserEvents = ({ state, log }: Pick<UsersOptions, "state" | "log">) =>
  createPrepareUserEvents({
    cache: state.caches.userLists,
    recordStandings: state.standings.record,
    isHot: createIsHot(HOT_USER_RATE),
    log,
  });

export type UsersServiceDeps = FollowsDeps &
  RelationsDeps &
  ProfileDeps &
  ErasureMethodsDeps &
  Omit<StandingsDeps, "log"> & { readonly standingOf: Standings["of"] };

/** A suspended user can call none of these. */
const WRITES = [
  ...(["follow", "unfollow", "followMany", "acceptFollow", "rejectFollow", "removeFollower"] as const),
  ...(["block", "unblock", "mute", "unmute", "setProfile"] as const),
] as const;

export function createUsersService(deps: UsersServiceDeps, log: Logger): Service {
  const follows = { ...changeFollows(deps), ...readFollows(deps) };
  const relations = { ...changeRelations(deps), ...readRelations(deps) };
  const all = { ...follows, ...relations, ...erasureMethods(deps), ...profiles(deps), ...standings({ ...deps, log }) };
  const methods = refusingSuspended(all, WRITES, deps.standingOf);
  return unaryService(UserServiceService, withSpelling(methods, deps.edges.storedAmong), log);
}

type ListsServiceDeps = MemberListsDeps & Pick<UsersServiceDeps, "edges" | "standingOf">;

export function createListsService(deps: ListsServiceDeps, log: Logger): Service {
  const changes = changeMemberLists(deps);
  const writes = Object.keys(changes) as (keyof typeof changes)[];
  const methods = refusingSuspended({ ...changes, ...readMemberLists(deps) }, writes, deps.standingOf);
  return unaryService(ListServiceService, withSpelling(methods, deps.edges.storedAmong), log);
}

export interface UsersOptions {
  readonly db: Db;
  readonly state: Pick<State, "caches" | "limits" | "lists" | "standings"> & {
    readonly erased: ErasuresDeps["erased"];
  };
  readonly tokens: PageTokens;
  readonly config: UsersConfig;
  /** Maximum number of reads that query the database at a time. */
  readonly readsAtOnce: number;
  readonly wakeRelay: (source: UsersSource) => void;
  readonly log: Logger;
}

const tooManyReads = () => new AppError("unavailable", "too many reads wait for the database");

/** Starts the users service and its maintenance, on a migrated database. */
export function startUsers({ db, state, tokens, config, readsAtOnce, wakeRelay, log }: UsersOptions) {
  const { erased } = state;
  const cache = state.caches.userLists;
  // Writes get connections while the cache is unavailable.
  const bounded = createBoundedQueue({ atOnce: readsAtOnce, waiting: MAX_WAITING_READS, refusal: tooManyReads });
  const limits = state.limits.openWrites();
  const [edges, store, relations] = [createEdgeStore(db), createListStore(db), createRelationStore(db)];
  const [erasures, approvals] = [createErasureStore(db), createApprovalStore(db)];
  const wakeUsersRelay = () => wakeRelay("users");
  const erasing = startErasures({
    store: erasures,
    rows: createErasureRows(db),
    cache,
    erased,
    forgetTimeline: state.lists.forget,
    wakeRelay: wakeUsersRelay,
    log,
    untilOlderEnded: (stopping) => untilOlderEnded(db, { stopping }),
  });
  const shared = {
    ...config,
    limited: limits.limited,
    wakeRelay,
    tokens,
    edges,
    standingOf: state.standings.of,
    bounded,
  };
  const lists = { ...shared, memberLists: createMemberListStore(db), forgetTimeline: state.lists.forget };
  const service = createUsersService(
    {
      ...shared,
      cache,
      readList: createReadList({ store, cache, bounded, maxCachedIds: MAX_CACHED_IDS, isErased: erasures.isErased }),
      readDated: createReadDated(db),
      relations,
      relationReads: createRelationReads(db),
      profiles: createProfileStore(db),
      approvals,
      standings: createStandingStore(db),
      erasures,
      wakeErasures: erasing.wake,
    },
    log,
  );
  const completing = {
    store: erasures,
    wakeRelay: wakeUsersRelay,
    log,
    untilOlderEnded: (stopping: AbortSignal) => untilOlderEnded(db, { stopping }),
  };
  const loops = [
    erasing,
    startCompletingUnknown(completing),
    startMaintenance({ store: createMaintenanceStore(db), log }),
    startAccepting({ accept: approvals.accept, cache, wakeRelay, maxFollowing: config.maxFollowing, log }),
    startEndingMutes({ endMutes: relations.endMutes, wakeRelay: wakeUsersRelay, log }),
  ];
  const applying = { apply: edges.apply, wakeRelay: wakeUsersRelay };
  return {
    services: [service, createListsService(lists, log)],
    applyEdges: { calm: createApplyEdges(applying, CALM_LANE), hot: createApplyEdges(applying, HOT_LANE) },
    close: async (): Promise<void> => {
      await Promise.all([...loops, limits].map((part) => part.close()));
    },
  };
}
