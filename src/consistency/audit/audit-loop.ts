import { oneLine } from "../../kernel/errors.js";
import { type Lease, renewing } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { MINUTE, SECOND } from "../../kernel/time.js";
import type { Reconcile, Reconciled } from "../reconcile/reconcile.js";
import { type Report, type Reports, TIMELINES, type TimelineKind } from "./audit.js";
import type { Auditor } from "./auditor.redis.js";

interface AuditLoopDeps {
  /** One process audits, and keeps the lease as long as it lives. */
  readonly lease: Lease;
  readonly intervalMs: number;
  /** Changes younger than this, in ms, are still under way. */
  readonly settleMs: number;
  readonly users: number;
  readonly recovering: () => boolean;
  readonly reconcile: Reconcile;
  readonly auditor: Pick<Auditor, "sample" | "homes" | "shared">;
  readonly log: Logger;
  readonly observe: { reconciled(found: Reconciled): void; audited(reports: Reports): void };
  /** The bound of a round, in ms; two minutes unless set. */
  readonly roundMs?: number;
}

const HOLD_EVERY_MS = 3 * SECOND;
const ROUND_MS = 120 * SECOND;
/** The part of the past that each round reconciles; longer than the default interval. */
const RECONCILED_MS = 15 * MINUTE;

/** Each round reconciles the recent past, then audits a sample of timelines and rebuilds those that differ. */
export function startAuditLoop(deps: AuditLoopDeps): { close(): Promise<void> } {
  const { lease, intervalMs, recovering } = deps;
  const everyMs = Math.min(intervalMs, HOLD_EVERY_MS);
  let due = performance.now() + intervalMs;
  const loop = startLoop({
    everyMs,
    firstAfterMs: everyMs,
    work: async (stopping) => {
      const held = await lease.hold().catch(() => false);
      if (stopping.aborted || (held && (performance.now() < due || recovering()))) return;
      if (held) await renewing(lease, () => round(deps, stopping));
      due = performance.now() + intervalMs;
    },
    closeMs: SECOND,
  });
  return {
    async close() {
      await loop.close();
      await lease.release();
    },
  };
}

async function round(deps: AuditLoopDeps, stopping: AbortSignal): Promise<void> {
  const { log, roundMs = ROUND_MS } = deps;
  const over = AbortSignal.any([stopping, AbortSignal.timeout(roundMs)]);
  const tried = async (name: string, work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!stopping.aborted) log.warn({ error: oneLine(error) }, `${name} failed; the next round repeats it`);
    }
  };
  await tried("reconciliation", () => reconcileRecent(deps, over));
  await tried("the audit", () => auditSample(deps, over));
}

async function reconcileRecent(
  { reconcile, settleMs, log, observe }: AuditLoopDeps,
  stopping: AbortSignal,
): Promise<void> {
  const until = Date.now() - settleMs;
  const found = await reconcile({ since: until - RECONCILED_MS, until }, { stopping });
  observe.reconciled(found);
  if (found.admitted > 0) log.warn(found, "events had been lost unnoticed; they are admitted now");
}

async function auditSample({ auditor, users, log, observe }: AuditLoopDeps, stopping: AbortSignal): Promise<void> {
  const options = { fix: true, stopping };
  const [home, local, global] = await Promise.all([
    auditor.homes(await auditor.sample(users), options),
    auditor.shared("local", options),
    auditor.shared("global", options),
  ]);
  const reports = { home, local, global };
  observe.audited(reports);
  for (const kind of TIMELINES) logReport(kind, reports[kind], log);
}

function logReport(timeline: TimelineKind, report: Report, log: Logger): void {
  const { judged, differing, repaired, remaining, failed, unrepaired } = report;
  const found = {
    timeline,
    judged,
    differing: differing.length,
    repaired: repaired.length,
    remaining: remaining.length,
  };
  const errors = [...failed, ...unrepaired];
  if (differing.length === 0 && errors.length === 0) log.debug(found, "the audited timelines are correct");
  else
    log.warn(
      { ...found, failed: errors.length, error: errors[0]?.error },
      "some of the audited timelines differ or could not be audited",
    );
}
