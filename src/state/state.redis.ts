import type { NatsConnection } from "nats";
import { remoteCapOf, type StoredTimelinesConfig } from "../contracts/config.js";
import type { Person } from "../contracts/people.js";
import type { Logger } from "../kernel/logger.js";
import { createBucket } from "../platform/nats/bucket.js";
import type { Publish } from "../platform/nats/publish.js";
import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { createAuthorWriter } from "./big-authors/author-writer.redis.js";
import { type AuthorRegistry, type FanoutThresholds, openPulled } from "./big-authors/index.js";
import { createPulls } from "./big-authors/pulls.redis.js";
import { createAnalysisCache, createRemoveKeys } from "./caches/analyses.redis.js";
import { dropUserCaches } from "./caches/drop-user-caches.redis.js";
import { createListCache } from "./caches/user-lists.redis.js";
import { createAuditReads, createReadEntry } from "./entries/audited.redis.js";
import { listHomes } from "./entries/homes.redis.js";
import { createLists } from "./entries/lists.redis.js";
import { amongLocal, newestOfLocal } from "./entries/local.redis.js";
import { openReadCache, type ReadCache } from "./entries/read-cache.redis.js";
import { createTimelineStore } from "./entries/store.redis.js";
import { createTrimStore, startTrimming } from "./entries/trim.redis.js";
import { createTimelineWriter } from "./entries/writer.redis.js";
import { createErased, createErasedList, createLift } from "./erased/erased.redis.js";
import { createNamesErased, storeUnlessErased } from "./erased/erased-letters.js";
import type { Erased } from "./erased/erasures.js";
import { readOwnDrops, readStoredDrops } from "./erased/own-drops.redis.js";
import { type Verifying, verifyKeys } from "./erased/verify-keys.redis.js";
import { createSend, createWalk } from "./erased/walk.redis.js";
import { createFenced, type Fenced } from "./fenced.redis.js";
import { createFences, createRetention, type ReadHistory } from "./fences/fences.js";
import { createFenceStore } from "./fences/store.redis.js";
import type { Fences } from "./fences/types.js";
import { createIsApart } from "./hidden/apart.redis.js";
import { createReadHidden, createReadHiddenTogether, createReadHidings } from "./hidden/hidden.grpc.js";
import { createHiddenStore } from "./hidden/hidden.redis.js";
import { createRelationWriter } from "./hidden/relations.redis.js";
import { openLease, type Work } from "./leases.redis.js";
import { createRateLimit } from "./limits/analyses.redis.js";
import { listAtLimit } from "./limits/limit-list.redis.js";
import { createLimits } from "./limits/limits.redis.js";
import { createReadRate } from "./limits/read-rate.redis.js";
import { createTokenBucket } from "./limits/source-tokens.redis.js";
import { createNotifyUser } from "./listeners/listed.redis.js";
import { createListeners } from "./listeners/listeners.redis.js";
import { createListenersAmong } from "./listeners/listening.redis.js";
import { createLogOut, createLogoutsAmong } from "./listeners/logouts.redis.js";
import { createStreamRegistryStore, LISTENERS, type RegistryOptions } from "./listeners/registry.redis.js";
import { createAttempts } from "./messages/attempts.redis.js";
import { createFillStore } from "./messages/log-fill.redis.js";
import { createProgress, createReadProgress } from "./messages/progress.redis.js";
import { createPublishing } from "./messages/publishing.redis.js";
import { createReconciledUpTo, createUnreconciled } from "./messages/reconciled.redis.js";
import { createReadWaiting, createWaiting } from "./messages/waiting.redis.js";
import { createServerIdentity } from "./servers/server-identity.redis.js";
import { createReadStandings } from "./standing/standings.grpc.js";
import { createStandings } from "./standing/standings.redis.js";
import { createVeiled } from "./standing/veiled.redis.js";

export type RedisState = ReturnType<typeof openRedisState>;

/** Opens the parts of the state that need no server but Redis. */
export function openRedisState(scripts: Scripts, clock: RedisClock) {
  const fenced = createFenced(scripts, clock);
  const send = createSend(scripts);
  const standings = createStandings(scripts);
  return {
    fenced,
    isConnected: (): boolean => scripts.client.status === "ready",
    identity: createServerIdentity(scripts, fenced),
    lease: (work: Work) => openLease(scripts, work),
    openAuthorStates: (thresholds: FanoutThresholds) => openPulled(scripts, clock, thresholds),
    standings,
    veiled: createVeiled(scripts, standings),
    readStandings: createReadStandings,
    attempts: createAttempts(scripts),
    waiting: { ...createWaiting(scripts), read: createReadWaiting(scripts) },
    fill: createFillStore(scripts),
    unreconciled: createUnreconciled(scripts),
    reconciledUpTo: createReconciledUpTo(scripts),
    readProgress: createReadProgress(scripts),
    listHomes: (after?: string) => listHomes(scripts, after),
    local: {
      newest: (range: Parameters<typeof newestOfLocal>[1]) => newestOfLocal(scripts, range),
      among: (drops: readonly string[]) => amongLocal(scripts, drops),
    },
    lists: createLists(scripts),
    caches: {
      userLists: createListCache(scripts),
      dropUserLists: () => dropUserCaches(scripts),
      analyses: createAnalysisCache(scripts),
      /** Removes the cached results of an account, and what counts its analyses and reads. */
      forgetAnalyses: createRemoveKeys(scripts),
    },
    limits: {
      openWrites: () => createLimits(scripts),
      listReached: (limits: Parameters<typeof listAtLimit>[1]) => listAtLimit(scripts, limits),
      analyses: createRateLimit(scripts),
      takeRead: createReadRate(scripts),
      openTokens: (perHour: number) => createTokenBucket(scripts, perHour),
    },
    streams: {
      now: () => clock.now(LISTENERS),
      logoutsAmong: createLogoutsAmong(scripts),
      openRegistry: (options: RegistryOptions) => createStreamRegistryStore(scripts, options),
    },
    erasure: {
      ...createWalk(scripts),
      readOwn: (users: readonly string[]) => readOwnDrops(send, users),
      readStored: (user: string) => readStoredDrops(send, user),
      verify: (person: Person, verifying: Verifying) => verifyKeys(scripts, person, verifying),
    },
  };
}

interface StateHandles {
  readonly scripts: Scripts;
  readonly clock: RedisClock;
  readonly state: RedisState;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly readHistory: (erased: Erased) => ReturnType<ReadHistory>;
  readonly readRetentionStart: () => Promise<number | undefined>;
  readonly config: { readonly storedTimelines: StoredTimelinesConfig; readonly fanout: FanoutThresholds };
  readonly log: Logger;
}

/** Replaces parts by others: the fault suite breaks them. */
export interface StateWraps {
  readonly fenced?: (usual: Fenced) => Fenced;
  readonly fences?: (usual: Fences) => Fences;
}

export type State = ReturnType<typeof openState>;

/** Opens the whole state. The time of the retention is unknown until it is refreshed or followed. */
export function openState(handles: StateHandles, wraps: StateWraps = {}) {
  const { scripts, clock, state, publish, config } = handles;
  const { ttlMs, homeReplies } = config.storedTimelines;
  const hasShare = remoteCapOf(config.storedTimelines) !== undefined;
  const judgesReplies = homeReplies === "followed";
  const fenced = wraps.fenced?.(state.fenced) ?? state.fenced;
  const marked = openErased(handles);
  const { erased } = marked;
  const { fences, retention } = openFences(handles, fenced, erased);
  const authorStates = state.openAuthorStates(config.fanout);
  const parts = { fences: wraps.fences?.(fences) ?? fences, erased, authorStates };
  return {
    ...state,
    ...marked,
    ...parts,
    ...openTimelines(handles, fenced, parts),
    retention,
    readEntry: createReadEntry(scripts, authorStates, judgesReplies),
    audited: createAuditReads({ scripts, authorStates, ttlMs, hasShare, judgesReplies }),
    streams: {
      ...state.streams,
      logOut: createLogOut({ scripts, publish, erased }),
      notifyUser: createNotifyUser({ scripts, publish, clock }),
      listenersAmong: createListenersAmong(scripts, clock),
    },
  };
}

const openBucket = ({ nats, publish }: Pick<StateHandles, "nats" | "publish">) => createBucket(nats, publish, "ERASED");

/** Opens the list of erased users, which needs no Redis. */
export const openErasedList = (handles: Parameters<typeof openBucket>[0]) => createErasedList(openBucket(handles));

function openErased(handles: StateHandles) {
  const { scripts, publish } = handles;
  const bucket = openBucket(handles);
  const erased = createErased(scripts, bucket);
  const namesErased = createNamesErased(erased);
  return {
    erased,
    erasedList: createErasedList(bucket),
    lift: createLift(scripts, bucket),
    namesErased,
    storeDeadLetter: storeUnlessErased(publish, namesErased),
  };
}

function openFences({ scripts, readHistory, readRetentionStart, log }: StateHandles, fenced: Fenced, erased: Erased) {
  const retention = createRetention(readRetentionStart, log);
  const store = createFenceStore(scripts, fenced);
  const { retentionStart } = retention;
  return { fences: createFences({ store, readHistory: () => readHistory(erased), retentionStart, log }), retention };
}

interface Parts {
  readonly fences: Fences;
  readonly erased: Erased;
  readonly authorStates: AuthorRegistry;
}

interface ReadsOptions {
  readonly readCache?: ReadCache | undefined;
  /** Number of places of a home in which reposts of one drop are shown once. Default: 0, all are shown. */
  readonly repostWindow?: number;
}

interface WritesOptions {
  readonly upstreams: Upstreams;
  readonly readAuthorDrops: Parameters<typeof createIsApart>[0]["readAuthorDrops"];
  /** Resolves once the pulled authors of a user are known. */
  readonly fillPulls: (user: string) => Promise<void>;
  readonly isFollowing: (user: string, author: string) => Promise<boolean>;
  /** Reads the ids of the lists with a member, of all owners if none is named. */
  readonly findLists: (member: string, owners: readonly string[]) => Promise<readonly string[]>;
  /** True: writes only to home timelines that were read since they were last lost. */
  readonly activeOnly: boolean;
}

function openTimelines(handles: StateHandles, fenced: Fenced, { fences, erased, authorStates }: Parts) {
  const { scripts, clock, state, config, log } = handles;
  const { maxEntries, ttlMs, homeReplies } = config.storedTimelines;
  const judgesReplies = homeReplies === "followed";
  return {
    openReadCache: (maxBytes: number) => openReadCache({ scripts, maxBytes, ttlMs, log }),
    /** Opens the users whose drops a user does not see. */
    openHidden: (upstreams: Parameters<typeof createReadHiddenTogether>[0]) =>
      createHiddenStore(scripts, createReadHiddenTogether(upstreams), erased, ttlMs),
    /** Opens what reads and rebuilds of timelines need. */
    openReads(upstreams: Parameters<typeof createReadHidden>[0], { readCache, ...window }: ReadsOptions = {}) {
      const { pages: cache, tombstones } = readCache ?? {};
      const hidden = createHiddenStore(scripts, createReadHidden(upstreams), erased, ttlMs);
      const base = { config: config.storedTimelines, authorStates, cache, tombstones, hidden };
      const { standings, veiled } = state;
      const options = { ...base, judgesReplies, erased, standings, veiled, ...window };
      return {
        hidden,
        store: createTimelineStore(scripts, fenced, options),
        pulls: createPulls(scripts, authorStates, erased, ttlMs),
      };
    },
    /** Opens what fan-out writes, and the listeners whom it notifies. */
    openWrites({ upstreams, readAuthorDrops, fillPulls, isFollowing, findLists, activeOnly }: WritesOptions) {
      const bounds = { maxEntries, ttlMs, remoteCap: remoteCapOf(config.storedTimelines) };
      const listenersAmong = createListenersAmong(scripts, clock);
      const hidden = createHiddenStore(scripts, createReadHiddenTogether(upstreams), erased, ttlMs);
      const isApart = createIsApart({ command: scripts.command, readAuthorDrops, counts: upstreams.counts });
      const sources = { readHidings: createReadHidings(upstreams), isApart, isFollowing };
      return {
        writer: createTimelineWriter(
          { scripts, fenced, erased, listenersAmong },
          { ...bounds, activeOnly, judgesReplies },
        ),
        authors: createAuthorWriter(scripts, fenced, bounds),
        listeners: createListeners({
          scripts,
          clock,
          unfollowedAmong: fences.unfollowedAmong,
          fillPulls,
          findLists: (member) => findLists(member, []),
        }),
        listenersAmong,
        relations: createRelationWriter({ scripts, hidden, sources, judgesReplies }, ttlMs),
        progress: createProgress(scripts),
        publishing: createPublishing(scripts),
      };
    },
    /** Starts removing drops older than the retention, in one process at a time. */
    startTrimming: () =>
      startTrimming({
        store: createTrimStore(scripts, fenced, authorStates),
        retentionStart: fences.retentionStart,
        lease: state.lease("trimming"),
        log,
      }),
  };
}
