import { SECOND } from "../kernel/time.js";
import { type LogFill, windowsOf } from "../state/index.js";
import { counter, histogram, observedGauge } from "../telemetry/meters.js";
import { KINDS, type Report, type Reports, TIMELINES, type TimelineKind } from "./audit/audit.js";
import type { PublicationResult } from "./audit/publications.js";

const audited = counter("timeline_audited", "Homes audited");
const timelines = counter("timeline_audit_timelines", "Audited timelines");
const differences = counter("timeline_audit_differences", "Wrong entries that audits found");
const repaired = counter("timeline_audit_repaired", "Timelines rebuilt since an audit found them to differ");
const repairs = counter(
  "timeline_audit_repairs",
  "Repairs by audits; one after which the timeline differs still has failed",
);
const repairTime = histogram(
  "timeline_audit_repair_seconds",
  "From finding that a timeline differs until its repair",
  [1, 5, 10, 30, 60, 120, 300, 900],
);

const publications = counter(
  "timeline_audit_publications",
  "Completed publications and deletions looked up in some timelines",
);

const windows = counter("timeline_suspect_windows", "Time ranges in which Redis Pub/Sub may have lost events");
const events = counter("timeline_reconciled_events", "Changes the upstreams listed, by whether the log had them");
const losses = counter(
  "timeline_redis_losses",
  "Losses of confirmed writes of a Redis, after which the log was applied again",
);
const logLosses = counter(
  "timeline_log_losses",
  "Losses of DROPS or FANOUT, or of messages in them, after which the upstreams were reconciled",
);
const replayed = counter("timeline_replayed_events", "Events applied again from the log");

export const observeAudit = {
  /** Adds series at 0, so that an alert sees their first rise. */
  started(): void {
    for (const kind of KINDS) differences.add(0, { kind });
    for (const result of ["lost", "kept"] as const) publications.add(0, { result });
    repairs.add(0, { result: "failed" });
  },
  audited(reports: Reports): void {
    audited.add(reports.home?.judged ?? 0);
    for (const kind of TIMELINES) {
      const report = reports[kind];
      if (report) auditedOne(kind, report);
    }
  },
  published: (result: PublicationResult, count = 1): void => publications.add(count, { result }),
  repaired(repairMs: readonly number[]): void {
    repairs.add(repairMs.length, { result: "repaired" });
    for (const ms of repairMs) repairTime.record(ms / SECOND);
  },
  unrepaired: (count: number): void => repairs.add(count, { result: "failed" }),
};

function auditedOne(timeline: TimelineKind, report: Report): void {
  const { judged, incomplete, undecided, failed, differing, remaining, unrepaired } = report;
  const same = Math.max(0, judged - differing.length - undecided.length);
  const results = { same, differing: differing.length, incomplete, undecided: undecided.length, failed: failed.length };
  for (const [result, count] of Object.entries(results)) timelines.add(count, { timeline, result });
  repaired.add(report.repaired.length);
  observeAudit.repaired(report.repairMs);
  observeAudit.unrepaired(remaining.length + unrepaired.length);
  const all = differing.flatMap((timeline) => timeline.differences);
  for (const kind of KINDS) differences.add(all.filter((difference) => difference.kind === kind).length, { kind });
}

export const observeReconcile = {
  requested: (cause: string): void => windows.add(1, { cause }),
  reconciled({ changes, admitted }: { readonly changes: number; readonly admitted: number }): void {
    events.add(admitted, { outcome: "admitted" });
    events.add(changes - admitted, { outcome: "known" });
  },
};

export const observeRecovery = {
  filled: (current: () => LogFill | undefined): void =>
    observedGauge(
      "timeline_log_fill_ratio",
      "Share of the time before a new log that it is filled with from the upstreams; 1: there is nothing to fill",
      () => {
        const fill = current();
        return fill ? fill.done.size / windowsOf(fill) : 1;
      },
    ),
  behind: (isBehind: () => boolean): void =>
    observedGauge(
      "timeline_upstreams_behind",
      "1 while the upstreams do not know drops or follows that the log or local holds, as after a restore of their database",
      () => (isBehind() ? 1 : 0),
    ),
  started(): void {
    for (const counted of [losses, logLosses, replayed]) counted.add(0);
  },
  recovered({ redis, log }: { readonly redis: boolean; readonly log: boolean }, count: number): void {
    if (redis) losses.add(1);
    if (log || !redis) logLosses.add(1);
    replayed.add(count);
  },
};
