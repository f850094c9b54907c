import { oneLine } from "../../kernel/errors.js";
import type { Lease } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { pause, SECOND } from "../../kernel/time.js";
import type { Report, Reports } from "./audit.js";
import { TIMELINES, type TimelineKind } from "./ports.js";

interface PatrolDeps {
  /** The right to go on patrol: one process has it, and keeps it as long as it lives. */
  readonly lease: Lease;
  /** Between the end of a round and the next, in ms. */
  readonly intervalMs: number;
  /** True while a round would find what is being mended anyway. */
  readonly busy: () => boolean;
  /** Admits what Redis Pub/Sub has lost lately; must end soon once `stopping` aborts. */
  readonly reconcile: (stopping: AbortSignal) => Promise<void>;
  /** Audits a sample and repairs it; the same goes for `stopping`. */
  readonly audit: (stopping: AbortSignal) => Promise<Reports>;
  readonly log: Logger;
  readonly observe: (reports: Reports) => void;
  /** How long a round may take, in ms; two minutes unless told otherwise. */
  readonly roundMs?: number;
}

/** Keeps the lease, which another process may take ten seconds after it was last held. */
const HOLD_EVERY_MS = 3 * SECOND;
const ROUND_MS = 120 * SECOND;

/**
 * Looks now and then whether timelines are as they should be, and mends what
 * is not, in one process at a time. Each half of a round is done whatever
 * became of the other.
 */
export function startPatrol(deps: PatrolDeps): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    for (let due = Date.now() + deps.intervalMs; !stopping.signal.aborted; ) {
      await pause(Math.min(deps.intervalMs, HOLD_EVERY_MS), stopping.signal);
      const inCharge = await deps.lease.hold().catch(() => false);
      if (stopping.signal.aborted) return;
      if (inCharge && (Date.now() < due || deps.busy())) continue;
      if (inCharge) await round(deps, stopping.signal);
      due = Date.now() + deps.intervalMs;
    }
  };
  const running = run();
  return {
    async close() {
      stopping.abort();
      await Promise.race([running, pause(SECOND)]);
      await deps.lease.release().catch(() => undefined);
    },
  };
}

async function round(deps: PatrolDeps, stopping: AbortSignal): Promise<void> {
  const { lease, log, roundMs = ROUND_MS } = deps;
  const over = AbortSignal.any([stopping, AbortSignal.timeout(roundMs)]);
  const holding = setInterval(() => void lease.hold().catch(() => undefined), HOLD_EVERY_MS);
  const tried = async (what: string, work: () => Promise<void>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (!stopping.aborted) log.warn({ error: oneLine(error) }, `${what} failed; the next round does it again`);
    }
  };
  try {
    await tried("reconciliation", () => deps.reconcile(over));
    await tried("the audit", async () => {
      const reports = await deps.audit(over);
      deps.observe(reports);
      for (const kind of TIMELINES) if (reports[kind]) tell(kind, reports[kind], log);
    });
  } finally {
    clearInterval(holding);
  }
}

function tell(timeline: TimelineKind, report: Report, log: Logger): void {
  const { judged, differing, repaired, remaining, failed, unrepaired } = report;
  const found = {
    timeline,
    judged,
    differing: differing.length,
    repaired: repaired.length,
    remaining: remaining.length,
  };
  const errors = [...failed, ...unrepaired];
  if (differing.length === 0 && errors.length === 0) log.debug(found, "the timelines looked at are as they should be");
  else
    log.warn(
      { ...found, failed: errors.length, error: errors[0]?.error },
      "of the timelines looked at some are not as they should be",
    );
}
