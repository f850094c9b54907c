import type { NatsConnection } from "nats";
import type { StoredTimelinesConfig } from "../contracts/config.js";
import { SUBJECT_OF } from "../contracts/events.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import type { Logger } from "../kernel/logger.js";
import { type Consuming, consume } from "../platform/nats/consume/consume.js";
import { createStoredMessages } from "../platform/nats/message.js";
import type { Publish } from "../platform/nats/publish.js";
import type { RedisClient } from "../platform/redis/clusters.js";
import { LEAVE_MS } from "../platform/redis/sentinel.js";
import { hasSentinels } from "../platform/redis/servers.js";
import type { State } from "../state/index.js";
import type { Upstreams } from "../upstreams/upstreams.grpc.js";
import { startAuditLoop } from "./audit/audit-loop.js";
import { type Auditor, createAuditor, type Rebuilding } from "./audit/auditor.js";
import {
  checkPublication,
  createChecks,
  createSample,
  PUBLICATION_CHECKS,
  type PublicationDeps,
} from "./audit/publications.js";
import type { AuditConfig } from "./config.js";
import { openFill, openFills } from "./fill/index.js";
import { createAdmit, createReadmit, EventLog, GRAPH_SUBJECTS, storedOf } from "./log.nats.js";
import { observeAudit, observeRecovery } from "./observe.js";
import { createReconcileRequests, createReconciliation, type Reconcile } from "./reconcile/reconcile.js";
import { recoveringErasures } from "./redis-loss/erasures.js";
import { LossDetector, type Recovery } from "./redis-loss/loss-detector.js";
import { createRecovery, type RecoveryDeps } from "./redis-loss/recovery.js";
import { type ApplyEvent, parsed } from "./replay.js";
import { followsIn } from "./restored/edges.js";
import { dropsIn } from "./restored/lost-by-restore.js";
import { createUndoLost, type UndoLost } from "./restored/recover.js";
import { createSamples } from "./restored/samples.js";
import { createReadSample } from "./restored/samples.nats.js";
import { startRestoreWatch } from "./restored/watch.js";
import { UpstreamView, WAITING } from "./upstreams.grpc.js";
import { eventsWithoutErased } from "./without-erased.js";

export { type Report, type Reports, TIMELINES, type TimelineKind } from "./audit/audit.js";
export type { Auditor } from "./audit/auditor.js";
export type { PublicationChecks } from "./audit/publications.js";
export { isLeftWrong, reportsAsJson, reportsAsText } from "./audit/report.js";
export { explainedAsJson, isWrong } from "./explain/explain.js";
export { admissionsOf, createReadDropEvents, type Explained, openExplain } from "./explain/facts.redis.js";
export { startExplainService } from "./explain/service.nats.js";
export { openFenceSources } from "./fence-sources.nats.js";
export { type Reconciled, untilNow } from "./reconcile/reconcile.js";
export { areUpstreamsBehind, checkBelonging, createReadAcked, openRedisOfLog } from "./redis-loss/servers.nats.js";
export { parsed, replay, retrying } from "./replay.js";
export { EventLog };

interface Handles {
  readonly redis: RedisClient;
  readonly state: State;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: (caller: "reads" | "reconcile" | "operator") => Upstreams;
  readonly log: Logger;
}

type With<Names extends keyof Handles> = Pick<Handles, Names>;
type Servers = With<"state" | "nats" | "log">;

const eventLogOf = ({ nats, state }: With<"nats" | "state">) => new EventLog(nats, state.waiting.read);

/** Composes a reconciliation. `lacking` is called once for each method that an upstream does not have. */
export function createReconcile(
  handles: With<"nats" | "publish" | "upstreams" | "log"> & { readonly lacking?: (method: string) => void },
): Reconcile {
  const { nats, publish, upstreams, log } = handles;
  const warn = (method: string) => log.warn({ method }, "the upstream cannot list changes; it is not reconciled");
  const { readChanges } = new UpstreamView(upstreams("reconcile"));
  return createReconciliation({
    readChanges: (range) => readChanges(range, handles.lacking ?? warn),
    readLogged: new EventLog(nats).readLogged,
    admit: createAdmit(publish),
  });
}

/** Takes requests to reconcile. If there are no upstreams to ask, requests are only counted. */
export const startReconcileRequests = (
  handles: With<"state" | "nats" | "publish" | "upstreams" | "log">,
  { canReconcile }: { readonly canReconcile: boolean },
) =>
  createReconcileRequests({
    reconcile: canReconcile ? createReconcile(handles) : undefined,
    unreconciled: handles.state.unreconciled,
    log: handles.log,
  });

/** Watches Redis and the log for losses. Without `recovery` losses are only detected. */
export function watchForLosses(servers: Servers, recovery?: Recovery): LossDetector {
  const { state, nats, log } = servers;
  if (recovery) observeRecovery.started();
  const { readLogState } = new EventLog(nats);
  return new LossDetector({ identity: state.identity, readLogState, log, recovery });
}

interface Config {
  readonly audit: AuditConfig;
  readonly storedTimelines: StoredTimelinesConfig;
  readonly delivery: { readonly retryBaseMs: number };
  readonly fanout: { readonly chunkSize: number };
  readonly nats: { readonly ackWaitMs: number };
}

/** Recovers from losses with the function that applies an event. Dead letters name the version of this program. */
export function openRecovery(
  config: Pick<Config, "delivery">,
  handles: Handles & { readonly redisOfLog: string | undefined },
  { apply, ...deadLettering }: { readonly apply: ApplyEvent } & Pick<RecoveryDeps, "storeDeadLetter" | "version">,
): Recovery {
  const { redis, state, log, redisOfLog } = handles;
  const lacking = (method: string): void =>
    log.error({ method }, "the log was lost, and the upstream cannot list changes: unapplied events stay lost");
  const { readBacklog, readUnapplied, readRange, readErasures, bindRedis: bind } = eventLogOf(handles);
  const readmit = createReadmit(handles.publish);
  const { beginFirstFill, beginFill } = openFills(handles, eventLogOf(handles));
  const recover = createRecovery({
    readRange,
    apply: parsed(apply),
    reconcile: createReconcile({ ...handles, lacking }),
    readmit,
    beginFill,
    ...WAITING,
    retryBaseMs: config.delivery.retryBaseMs,
    log,
    ...deadLettering,
  });
  return {
    leaveMs: hasSentinels(redis) ? LEAVE_MS : 0,
    lease: state.lease("replay"),
    bound: redisOfLog === undefined ? undefined : { redis: redisOfLog, bind },
    readBacklog,
    readUnapplied,
    beginFirstFill,
    recover: recoveringErasures(
      { readErasures, apply, readmit: (event) => readmit(storedOf(event)), among: state.erased.among },
      recover,
    ),
    observe: observeRecovery.recovered,
  };
}

/** Takes part in filling the log while a fill is under way. */
export const startLogFill = (
  handles: With<"state" | "nats" | "publish" | "upstreams" | "log">,
  { maybeLost: isLost }: LossDetector,
) => openFill(handles, { eventLog: eventLogOf(handles), reconcile: createReconcile(handles), isLost });

/**
 * Checks if the upstreams know the contents of the log and local, in the process that writes the server identity
 * record.
 */
export function watchForRestores(
  { audit: { settleMs } }: Pick<Config, "audit">,
  handles: With<"state" | "nats" | "upstreams" | "log">,
  losses: LossDetector,
) {
  const { state, nats, upstreams, log } = handles;
  observeRecovery.behind(() => losses.behind !== undefined);
  const readDrops = createReadSample(nats, SUBJECT_OF.drop_created, dropsIn);
  const readEdges = createReadSample(nats, GRAPH_SUBJECTS, followsIn);
  const samples = createSamples({ state, settleMs, readDrops, readEdges });
  return startRestoreWatch({ samples, upstreams: new UpstreamView(upstreams("reconcile")), losses, settleMs, log });
}

/** Corrects the log and the fences by the upstreams, after a restore of their database. */
export function openUndoLost(handles: Omit<Handles, "redis">): UndoLost {
  const { state, nats, publish, upstreams } = handles;
  const { fences, erased, waiting, caches } = state;
  const { readLogged, readUnapplied } = eventLogOf(handles);
  const messages = createStoredMessages(nats);
  return createUndoLost({
    eventLog: { readUnapplied, readLogged: (...range) => eventsWithoutErased(erased, readLogged(...range)) },
    upstreams: new UpstreamView(upstreams("operator")),
    fences,
    dropUserCaches: caches.dropUserLists,
    removeLogged: async (seq) => {
      // NATS discards the pending redelivery together with its message.
      await waiting.remove({ consumer: CONSUMER.graph, seq });
      await messages.remove(STREAM.drops, seq);
    },
    admit: createAdmit(publish),
    reconcile: createReconcile(handles),
  });
}

/** Audits timelines, and rebuilds those that differ. */
export const openAuditor = (
  { audit: { settleMs }, storedTimelines: { maxEntries } }: Pick<Config, "audit" | "storedTimelines">,
  handles: With<"state" | "nats" | "upstreams" | "log">,
  rebuilding: Rebuilding,
): Auditor => {
  const { readUnapplied } = eventLogOf(handles);
  const { isKnown } = new UpstreamView(handles.upstreams("reads"));
  return createAuditor({ ...handles, maxEntries, settleMs, rebuilding, readUnapplied, isKnown });
};

interface Audited {
  readonly auditor: Auditor;
  /** Resolves to the reason why a home leaves out a drop; reads/index.ts has it. */
  readonly hides: PublicationDeps["hides"];
  readonly maybeLost: () => boolean;
  /** Callback: called once no more publications are fetched. */
  readonly stopped: () => void;
  readonly checks?: Partial<typeof PUBLICATION_CHECKS> | undefined;
}

/** Starts the audit loop, which can be switched off, and the checks of publications. */
export function startAudits(
  config: Config,
  handles: Omit<Handles, "redis">,
  audited: Audited,
): { readonly checks: Consuming; close(graceMs: number): Promise<void> } {
  observeAudit.started();
  const { intervalMs, settleMs } = config.audit;
  const loop =
    intervalMs === 0
      ? undefined
      : startAuditLoop({
          lease: handles.state.lease("audit"),
          intervalMs,
          settleMs,
          recovering: audited.maybeLost,
          auditor: audited.auditor,
          log: handles.log,
          reconciledUpTo: handles.state.reconciledUpTo,
          reconcile: createReconcile(handles),
          audited: observeAudit.audited,
        });
  const checks = startPublicationChecks(config, handles, audited);
  return { checks, close: async (graceMs) => void (await Promise.all([loop?.close(), checks.close(graceMs)])) };
}

const MOST_HELD = 1_024;

/** Chooses the publications that are checked. */
export const samplePublications = (checks: Partial<typeof PUBLICATION_CHECKS> = {}) =>
  createSample({ ...PUBLICATION_CHECKS, ...checks, observe: observeAudit.published });

function startPublicationChecks(
  { fanout: { chunkSize }, nats: { ackWaitMs }, storedTimelines: { homeReplies } }: Config,
  { state, nats, upstreams, log }: With<"state" | "nats" | "upstreams" | "log">,
  { auditor, hides, maybeLost, stopped, checks }: Audited,
): Consuming {
  const { delayMs } = { ...PUBLICATION_CHECKS, ...checks };
  const { findDrop, sampleFollowers } = new UpstreamView(upstreams("reads"));
  const deps = {
    ...state.fences,
    findDrop,
    hides,
    judgesReplies: homeReplies === "followed",
    maybeLost,
    repair: auditor.repair,
    recheckMs: delayMs,
    sampleFollowers: (author: string, pages: number) => sampleFollowers(author, pages, chunkSize),
    readEntry: state.readEntry,
    readUnapplied: eventLogOf({ nats, state }).readUnapplied,
  };
  const process = createChecks({
    check: (completed, context) => checkPublication(deps, completed, context),
    observe: observeAudit.published,
    delayMs,
  });
  const queue = { stream: STREAM.checks, consumer: CONSUMER.publications, concurrency: MOST_HELD };
  return consume(nats, { ...queue, ackWaitMs, process, stopped, log });
}
