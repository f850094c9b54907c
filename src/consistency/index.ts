import type { NatsConnection } from "nats";
import type { StoredTimelinesConfig } from "../contracts/config.js";
import { AUDIT_LEASE_KEY, REPLAY_LEASE_KEY } from "../contracts/keys.js";
import { CONSUMER, STREAM } from "../contracts/subjects.js";
import { LOG_AGE_MS } from "../contracts/times.js";
import type { StoreDeadLetter } from "../delivery/dead-letter.js";
import type { Logger } from "../kernel/logger.js";
import { sharedNow } from "../kernel/time.js";
import type { Upstreams } from "../platform/grpc/upstreams.js";
import { type Consuming, consume } from "../platform/nats/consume.js";
import type { Publish } from "../platform/nats/publish.js";
import { createLease } from "../platform/redis/lease.js";
import type { Scripts } from "../platform/redis/scripts.js";
import type { Fenced } from "../records/fenced.redis.js";
import type { Fences } from "../records/fences.js";
import type { PulledAuthors } from "../records/pulled.js";
import { createReadWaiting } from "../records/waiting.redis.js";
import { startAuditLoop } from "./audit/audit-loop.js";
import { type Auditor, createAuditor, createReadEntry, type Rebuilding } from "./audit/auditor.redis.js";
import { checkPublication, createChecks, createSample, PUBLICATION_CHECKS } from "./audit/publications.js";
import { createReconciledUpTo } from "./audit/reconciled.redis.js";
import type { AuditConfig } from "./config.js";
import { createFences, createRetention, followRetention } from "./fences/fences.js";
import { createFenceStore } from "./fences/store.redis.js";
import {
  createAdmit,
  createLogBinding,
  createReadAdmittedIds,
  createReadBacklog,
  createReadBacklogStart,
  createReadHistory,
  createReadLastAdmission,
  createReadLogState,
  createReadmit,
  createReadRange,
  createReadUnapplied,
} from "./log.nats.js";
import { observeAudit, observeReconcile, observeRecovery } from "./observe.js";
import {
  createReconcileRequests,
  createReconciliation,
  type Reconcile,
  type ReconcileRequests,
} from "./reconcile/reconcile.js";
import { createUnreconciled } from "./reconcile/unreconciled.redis.js";
import { checkRedisOfLog, findRedisOfLog } from "./redis-loss/binding.js";
import { LossDetector, type Recovery } from "./redis-loss/loss-detector.js";
import { createRecovery } from "./redis-loss/recovery.js";
import { createServerIdentity } from "./redis-loss/server-identity.redis.js";
import { type ApplyEvent, parsed } from "./replay.js";
import { openUndo, type UndoLost } from "./restored/index.js";
import {
  createIsKnown,
  createListsDrops,
  createPublicationSources,
  createReadChanges,
  createReadRetentionStart,
  WAITING,
} from "./upstreams.grpc.js";

export { type Report, type Reports, TIMELINES, type TimelineKind } from "./audit/audit.js";
export type { Auditor } from "./audit/auditor.redis.js";
export type { PublicationChecks } from "./audit/publications.js";
export { isLeftWrong, reportsAsJson, reportsAsText } from "./audit/report.js";
export { type Reconciled, type ReconcileRequests, untilNow } from "./reconcile/reconcile.js";
export { parsed, replay, retrying } from "./replay.js";
export { watchForRestores } from "./restored/index.js";
export { createReadBacklogStart, createReadLastAdmission, createReadRange };

interface Handles {
  readonly scripts: Scripts;
  readonly fenced: Fenced;
  readonly nats: NatsConnection;
  readonly publish: Publish;
  readonly upstreams: (caller: "reads" | "reconcile" | "operator") => Upstreams;
  readonly fences: Fences;
  readonly pulled: PulledAuthors;
  readonly log: Logger;
}

/** The fences, and the retention time they use once it is refreshed or followed. */
export function openFences(handles: Omit<Handles, "publish" | "fences" | "pulled">) {
  const { scripts, fenced, nats, upstreams, log } = handles;
  const retention = createRetention(createReadRetentionStart(() => upstreams("operator")));
  const fences = createFences({
    store: createFenceStore(scripts, fenced),
    readHistory: createReadHistory(nats),
    retentionStart: retention.retentionStart,
    log,
  });
  return { fences, retention: { refresh: retention.refresh, follow: () => followRetention(retention, log) } };
}

/**
 * Resolves to the sequence up to which the log created at that time was applied; undefined if Redis knows of another
 * log.
 */
export function createReadAcked({ scripts, fenced }: Pick<Handles, "scripts" | "fenced">) {
  const identity = createServerIdentity(scripts, fenced);
  return async (logCreated: string): Promise<number | undefined> => {
    const { log, acked } = await identity.read();
    return log?.drops === logCreated ? acked : undefined;
  };
}

type BindingHandles = Pick<Handles, "scripts" | "fenced" | "nats">;

const bindingOf = ({ scripts, fenced, nats }: BindingHandles) => ({
  identity: createServerIdentity(scripts, fenced),
  binding: createLogBinding(nats),
});

/** Resolves to the name of the Redis that the log belongs to. @throws ConfigError where that is another one */
export const openRedisOfLog = (handles: BindingHandles, { mayBind }: { readonly mayBind: boolean }) =>
  findRedisOfLog({ ...bindingOf(handles), mayBind });

/** @throws ConfigError where the log belongs to another Redis */
export const checkBelonging = (handles: BindingHandles): Promise<void> => checkRedisOfLog(bindingOf(handles));

/** `lacking` is called once for each method that an upstream does not have. */
export function createReconcile({
  nats,
  publish,
  upstreams,
  log,
  lacking = (method) => log.warn({ method }, "the upstream cannot list changes; it is not reconciled"),
}: Pick<Handles, "nats" | "publish" | "upstreams" | "log"> & { lacking?: (method: string) => void }): Reconcile {
  return createReconciliation({
    readChanges: createReadChanges(() => upstreams("reconcile"), lacking),
    readAdmittedIds: createReadAdmittedIds(nats),
    admit: createAdmit(publish),
  });
}

/** Takes requests to reconcile. Without upstreams to ask it only counts them. */
export function startReconcileRequests(
  handles: Pick<Handles, "scripts" | "nats" | "publish" | "upstreams" | "log">,
  { canReconcile }: { readonly canReconcile: boolean },
): ReconcileRequests {
  return createReconcileRequests({
    reconcile: canReconcile ? createReconcile(handles) : undefined,
    unreconciled: createUnreconciled(handles.scripts),
    log: handles.log,
    observe: observeReconcile,
  });
}

type LossHandles = Pick<Handles, "scripts" | "fenced" | "nats" | "upstreams" | "log">;

/** Watches Redis and the log for losses; without `recovery` it only detects them. */
export function watchForLosses(handles: LossHandles, recovery?: Recovery): LossDetector {
  const { scripts, fenced, nats, upstreams, log } = handles;
  if (recovery) observeRecovery.started();
  const listsDrops = createListsDrops(() => upstreams("reconcile"));
  let isNew: boolean | undefined;
  return new LossDetector({
    identity: createServerIdentity(scripts, fenced),
    readLogState: createReadLogState(nats),
    lacksHistory: async () => {
      isNew ??= (await createReadBacklog(nats)()).acked === 0;
      return isNew && listsDrops(sharedNow() - LOG_AGE_MS);
    },
    log,
    recovery,
  });
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
  handles: Omit<Handles, "fenced" | "fences" | "pulled"> & { readonly redisOfLog: string | undefined },
  { apply, ...deadLettering }: { apply: ApplyEvent; storeDeadLetter: StoreDeadLetter; version: string },
): Recovery {
  const { scripts, nats, log, redisOfLog: redis } = handles;
  const lacking = (method: string): void =>
    log.error({ method }, "the log was lost, and the upstream cannot list changes: unapplied events stay lost");
  const readBacklog = createReadBacklog(nats);
  return {
    lease: createLease(scripts, REPLAY_LEASE_KEY),
    bound: redis === undefined ? undefined : { redis, bind: createLogBinding(nats).bind },
    readBacklog,
    readUnapplied: createReadUnapplied(nats, createReadWaiting(scripts)),
    recover: createRecovery({
      readBacklog,
      readRange: createReadRange(nats),
      apply: parsed(apply),
      reconcile: createReconcile({ ...handles, lacking }),
      reconciled: observeReconcile.reconciled,
      readmit: createReadmit(handles.publish),
      ...WAITING,
      retryBaseMs: config.delivery.retryBaseMs,
      log,
      ...deadLettering,
    }),
    observe: observeRecovery.recovered,
  };
}

/** Audits timelines, and rebuilds those that differ. */
export const openAuditor = (
  { audit: { settleMs }, storedTimelines }: Pick<Config, "audit" | "storedTimelines">,
  handles: Pick<Handles, "scripts" | "nats" | "upstreams" | "fences" | "pulled" | "log">,
  rebuilding: Rebuilding,
): Auditor =>
  createAuditor({
    ...handles,
    ...{ storedTimelines, settleMs, rebuilding },
    readUnapplied: createReadUnapplied(handles.nats, createReadWaiting(handles.scripts)),
    isKnown: createIsKnown(() => handles.upstreams("reads")),
  });

/** Makes the log and the fences what the upstreams say, after a restore of their database. */
export const openUndoLost = (handles: Omit<Handles, "fenced" | "pulled">): UndoLost =>
  openUndo(handles, createReconcile(handles));

interface Audited {
  readonly auditor: Auditor;
  readonly maybeLost: () => boolean;
  /** This is called once no more publications are fetched. */
  readonly stopped: () => void;
  readonly checks?: Partial<typeof PUBLICATION_CHECKS> | undefined;
}

/** Starts the audit loop, which can be switched off, and the checks of publications. */
export function startAudits(
  config: Config,
  handles: Omit<Handles, "fenced">,
  audited: Audited,
): { readonly checks: Consuming; close(graceMs: number): Promise<void> } {
  observeAudit.started();
  const { intervalMs, settleMs } = config.audit;
  const { auditor, maybeLost: recovering } = audited;
  const loop =
    intervalMs === 0
      ? undefined
      : startAuditLoop({
          lease: createLease(handles.scripts, AUDIT_LEASE_KEY),
          ...{ intervalMs, settleMs, recovering, auditor, log: handles.log },
          reconciledUpTo: createReconciledUpTo(handles.scripts),
          reconcile: createReconcile(handles),
          observe: { reconciled: observeReconcile.reconciled, audited: observeAudit.audited },
        });
  const checks = startPublicationChecks(config, handles, audited);
  return { checks, close: async (graceMs) => void (await Promise.all([loop?.close(), checks.close(graceMs)])) };
}

const MOST_HELD = 1_024;

/** Chooses the publications that are checked. */
export const samplePublications = (checks: Partial<typeof PUBLICATION_CHECKS> = {}) =>
  createSample({ ...PUBLICATION_CHECKS, ...checks, observe: observeAudit.published });

function startPublicationChecks(
  { fanout, nats: { ackWaitMs } }: Config,
  { scripts, nats, upstreams, fences, pulled, log }: Omit<Handles, "fenced" | "publish">,
  { auditor, maybeLost, stopped, checks }: Audited,
): Consuming {
  const { delayMs } = { ...PUBLICATION_CHECKS, ...checks };
  const deps = {
    ...createPublicationSources(() => upstreams("reads"), fanout.chunkSize),
    readEntry: createReadEntry(scripts, pulled),
    tombstonedAmong: fences.tombstonedAmong,
    unfollowedAmong: fences.unfollowedAmong,
    readUnapplied: createReadUnapplied(nats, createReadWaiting(scripts)),
    ...{ repair: auditor.repair, maybeLost, recheckMs: delayMs },
  };
  const process = createChecks({
    check: (completed, context) => checkPublication(deps, completed, context),
    observe: observeAudit.published,
    delayMs,
  });
  return consume(nats, {
    stream: STREAM.checks,
    consumer: CONSUMER.publications,
    concurrency: MOST_HELD,
    ...{ ackWaitMs, process, stopped, log },
  });
}
