import { CLOCK_SKEW_MS, LOG_AGE_MS } from "../../contracts/times.js";
import { oneLine } from "../../kernel/errors.js";
import { type Lease, renewing } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import type { ReconciledUpTo } from "../../state/index.js";
import { observeReconcile } from "../observe.js";
import type { Reconcile, Reconciled } from "../reconcile/reconcile.js";
import { type Report, type Reports, TIMELINES, type TimelineKind } from "./audit.js";
import type { Auditor } from "./auditor.js";

/**
 * Dependencies of the loop. `reconciledUpTo`: time up to which rounds have reconciled, in ms since the epoch; it
 * outlives the process.
 */
interface AuditLoopDeps {
  /** Lease of the loop: one process audits, and keeps the lease as long as it lives. */
  readonly lease: Lease;
  readonly intervalMs: number;
  /** Minimum age of the changes that are compared, ms: younger ones are still under way. */
  readonly settleMs: number;
  readonly recovering: () => boolean;
  readonly reconciledUpTo: ReconciledUpTo;
  readonly reconcile: Reconcile;
  readonly auditor: Pick<Auditor, "sample" | "homes" | "shared">;
  readonly log: Logger;
  readonly audited: (reports: Reports) => void;
  /** Maximum time of a round, ms. Default: two minutes. */
  readonly roundMs?: number;
}

/** Number of home timelines that a round compares. Each costs the upstreams as much as a cold read. */
const AUDITED_HOMES = 20;
const HOLD_EVERY_MS = 3 * SECOND;
const ROUND_MS = 120 * SECOND;
/** Minimum length of the past that each round reconciles: an upstream may list a change late. */
const RECONCILED_MS = 15 * MINUTE;

/**
 * Starts the loop. Each round reconciles from the end of the last one, then audits some timelines and rebuilds those
 * that differ.
 */
export function startAuditLoop(deps: AuditLoopDeps): { close(): Promise<void> } {
  const { lease, intervalMs, recovering } = deps;
  const everyMs = Math.min(intervalMs, HOLD_EVERY_MS);
  // Undefined without the lease: other processes may do rounds meanwhile.
  let due: number | undefined;
  const loop = startLoop({
    everyMs,
    firstAfterMs: everyMs,
    work: async (stopping) => {
      const isHeld = await lease.hold().catch(() => false);
      if (!isHeld) due = undefined;
      if (!isHeld || stopping.aborted) return;
      due ??= performance.now() + (await firstDelay(deps));
      if (performance.now() < due || recovering()) return;
      await renewing(lease, () => round(deps, stopping));
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

/** Returns the time until the first round. A process that takes over continues the rounds of the one before it. */
async function firstDelay({ reconciledUpTo, intervalMs, settleMs }: AuditLoopDeps): Promise<number> {
  const upTo = await reconciledUpTo.read();
  return upTo === undefined ? intervalMs : Math.min(upTo + settleMs + intervalMs - sharedNow(), intervalMs);
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

async function reconcileRecent(deps: AuditLoopDeps, stopping: AbortSignal): Promise<void> {
  const { reconcile, reconciledUpTo, settleMs, log } = deps;
  const until = sharedNow() - settleMs;
  const recent = until - RECONCILED_MS;
  const before = await reconciledUpTo.read();
  const from = before === undefined ? recent : Math.min(recent, before - CLOCK_SKEW_MS);
  // The log cannot tell which older events it has held.
  const since = Math.max(from, until - LOG_AGE_MS);
  let reached = before ?? recent;
  const progress = (_: Reconciled, upTo: number): void => {
    reached = upTo;
  };
  try {
    const reconciled = await reconcile({ since, until }, { progress, stopping });
    observeReconcile.reconciled(reconciled);
    if (reconciled.admitted > 0) log.warn(reconciled, "events had been lost unnoticed; they are admitted now");
  } finally {
    await reconciledUpTo.write(reached);
  }
}

async function auditSample({ auditor, log, audited }: AuditLoopDeps, stopping: AbortSignal): Promise<void> {
  const options = { fix: true, stopping };
  const [home, local, global] = await Promise.all([
    auditor.homes(await auditor.sample(AUDITED_HOMES), options),
    auditor.shared("local", options),
    auditor.shared("global", options),
  ]);
  const reports = { home, local, global };
  audited(reports);
  for (const kind of TIMELINES) logReport(kind, reports[kind], log);
}

function logReport(timeline: TimelineKind, report: Report, log: Logger): void {
  const { judged, differing, repaired, remaining, failed, unrepaired } = report;
  const fields = {
    timeline,
    judged,
    differing: differing.length,
    repaired: repaired.length,
    remaining: remaining.length,
  };
  const errors = [...failed, ...unrepaired];
  if (differing.length === 0 && errors.length === 0) log.debug(fields, "the audited timelines are correct");
  else
    log.warn(
      { ...fields, failed: errors.length, error: errors[0]?.error },
      "some of the audited timelines differ or could not be audited",
    );
}
