import { remoteCapOf, type StoredTimelinesConfig } from "../contracts/config.js";
import type { Logger } from "../kernel/logger.js";
import type { RedisClock } from "../platform/redis/clock.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { createAuthorWriter } from "./big-authors/author-writer.redis.js";
import type { AuthorRegistry } from "./big-authors/index.js";
import { createPulls } from "./big-authors/pulls.redis.js";
import { dropUserCaches } from "./caches/drop-user-caches.redis.js";
import { createAuditReads, createReadEntry } from "./entries/audited.redis.js";
import { listHomes } from "./entries/homes.redis.js";
import { amongLocal, newestOfLocal } from "./entries/local.redis.js";
import type { ReadCache } from "./entries/read-cache.redis.js";
import { createTimelineStore } from "./entries/store.redis.js";
import { createTrimStore, startTrimming } from "./entries/trim.redis.js";
import { createTimelineWriter } from "./entries/writer.redis.js";
import type { Erased } from "./erased/erasures.js";
import type { Fenced } from "./fenced.redis.js";
import type { Fences } from "./fences/types.js";
import { createIsApart } from "./hidden/apart.redis.js";
import { createReadHidden, createReadHiddenTogether, createReadHidings } from "./hidden/hidden.grpc.js";
import { createHiddenStore } from "./hidden/hidden.redis.js";
import { createRelationWriter } from "./hidden/relations.redis.js";
import { openLease, type Work } from "./leases.redis.js";
import { createListeners } from "./listeners/listeners.redis.js";
import { createListenersAmong } from "./listeners/listening.redis.js";
import { createFillStore } from "./messages/log-fill.redis.js";
import { createProgress, createReadProgress } from "./messages/progress.redis.js";
import { createReconciledUpTo, createUnreconciled } from "./messages/reconciled.redis.js";
import { createReadWaiting, createWaiting } from "./messages/waiting.redis.js";
import type { ServerIdentity } from "./servers/server-identity.redis.js";

interface StateHandles {
  readonly scripts: Scripts;
  readonly clock: RedisClock;
  readonly fenced: Fenced;
  readonly identity: ServerIdentity;
  readonly fences: Fences;
  readonly erased: Erased;
  readonly authorStates: AuthorRegistry;
  readonly storedTimelines: StoredTimelinesConfig;
}

interface WritesOptions {
  readonly upstreams: Upstreams;
  readonly readAuthorDrops: Parameters<typeof createIsApart>[0]["readAuthorDrops"];
  /** Resolves once the pulled authors of a user are known. */
  readonly fillPulls: (user: string) => Promise<void>;
  /** True: writes only to home timelines that were read since they were last lost. */
  readonly activeOnly: boolean;
}

export type State = ReturnType<typeof openState>;

/** Opens the state of timelines. The parts that keep caches are opened by the component that uses them. */
export function openState(handles: StateHandles) {
  const { scripts, clock, fenced, identity, fences, erased, authorStates, storedTimelines } = handles;
  const { maxEntries, ttlMs } = storedTimelines;
  const remoteCap = remoteCapOf(storedTimelines);
  return {
    fences,
    erased,
    authorStates,
    lease: (work: Work) => openLease(scripts, work),
    identity,
    waiting: { ...createWaiting(scripts), read: createReadWaiting(scripts) },
    fill: createFillStore(scripts),
    unreconciled: createUnreconciled(scripts),
    reconciledUpTo: createReconciledUpTo(scripts),
    dropUserCaches: () => dropUserCaches(scripts),
    readProgress: createReadProgress(scripts),
    readEntry: createReadEntry(scripts, authorStates),
    audited: createAuditReads({ scripts, authorStates, ttlMs, hasShare: remoteCap !== undefined }),
    listHomes: (after?: string) => listHomes(scripts, after),
    local: {
      newest: (range: Parameters<typeof newestOfLocal>[1]) => newestOfLocal(scripts, range),
      among: (drops: readonly string[]) => amongLocal(scripts, drops),
    },
    /** Opens what reads and rebuilds of timelines need. */
    openReads(upstreams: Parameters<typeof createReadHidden>[0], readCache?: ReadCache) {
      const { pages: cache, tombstones } = readCache ?? {};
      const hidden = createHiddenStore(scripts, createReadHidden(upstreams), erased, ttlMs);
      const options = { config: storedTimelines, authorStates, cache, tombstones, hidden };
      return {
        hidden,
        store: createTimelineStore(scripts, fenced, options),
        pulls: createPulls(scripts, authorStates, erased, ttlMs),
      };
    },
    /** Opens what fan-out writes, and the listeners whom it notifies. */
    openWrites({ upstreams, readAuthorDrops, fillPulls, activeOnly }: WritesOptions) {
      const bounds = { maxEntries, ttlMs };
      const listenersAmong = createListenersAmong(scripts, clock);
      const hidden = createHiddenStore(scripts, createReadHiddenTogether(upstreams), erased, ttlMs);
      const isApart = createIsApart({ command: scripts.command, readAuthorDrops, counts: upstreams.counts });
      const sources = { readHidings: createReadHidings(upstreams), isApart };
      return {
        writer: createTimelineWriter({ scripts, fenced, erased, listenersAmong }, { ...bounds, activeOnly, remoteCap }),
        authors: createAuthorWriter(scripts, fenced, bounds),
        listeners: createListeners({ scripts, clock, unfollowedAmong: fences.unfollowedAmong, fillPulls }),
        listenersAmong,
        relations: createRelationWriter({ scripts, hidden, sources }, ttlMs),
        progress: createProgress(scripts),
      };
    },
    /** Starts removing drops older than the retention, in one process at a time. */
    startTrimming: (log: Logger) =>
      startTrimming({
        store: createTrimStore(scripts, fenced, authorStates),
        retentionStart: () => fences.retentionStart(),
        lease: openLease(scripts, "trimming"),
        log,
      }),
  };
}
