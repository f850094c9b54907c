import { metrics } from "@opentelemetry/api";
import type { Report, Reports } from "./audit.js";
import { KINDS } from "./compare.js";
import { TIMELINES, type TimelineKind } from "./ports.js";
import type { PublicationResult } from "./publications.js";

const meter = metrics.getMeter("avion-timeline");
const audited = meter.createCounter("timeline_audited", {
  description: "Home timelines compared with what the upstreams say",
});
const timelines = meter.createCounter("timeline_audit_timelines", {
  description: "Audited timelines, by kind (home, local, global) and result",
});
const differences = meter.createCounter("timeline_audit_differences", {
  description: "Entries found to differ from what the upstreams or the log say, by how",
});
const repaired = meter.createCounter("timeline_audit_repaired", {
  description: "Timelines rebuilt since an audit found them to differ",
});
const repairs = meter.createCounter("timeline_audit_repairs", {
  description: "Repairs by audits, by result; one after which the timeline differs still has failed",
});

const publications = meter.createCounter("timeline_audit_publications", {
  description: "Completed publications and deletions looked up in some timelines, by result",
});

/** What operators see of audits. */
export const observeAudit = {
  /** Counts what rules watch from 0, so that the first finding is seen as a rise. */
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
  published(result: PublicationResult): void {
    publications.add(1, { result });
  },
  repaired(result: "repaired" | "failed", count = 1): void {
    repairs.add(count, { result });
  },
};

function auditedOne(timeline: TimelineKind, report: Report): void {
  const { judged, incomplete, undecided, failed, differing, remaining, unrepaired } = report;
  const same = Math.max(0, judged - differing.length - undecided.length);
  const results = { same, differing: differing.length, incomplete, undecided: undecided.length, failed: failed.length };
  // A series that is there at 0 lets a rule see its first rise.
  for (const [result, count] of Object.entries(results)) timelines.add(count, { timeline, result });
  repaired.add(report.repaired.length);
  observeAudit.repaired("repaired", report.repaired.length - remaining.length);
  observeAudit.repaired("failed", remaining.length + unrepaired.length);
  const all = differing.flatMap((one) => one.differences);
  for (const kind of KINDS) differences.add(all.filter((one) => one.kind === kind).length, { kind });
}
