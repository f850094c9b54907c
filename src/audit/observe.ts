import { metrics } from "@opentelemetry/api";
import type { Report } from "./audit.js";
import { KINDS } from "./compare.js";

const meter = metrics.getMeter("avion-timeline");
const audited = meter.createCounter("timeline_audited", {
  description: "Home timelines compared with what the upstreams say",
});
const differences = meter.createCounter("timeline_audit_differences", {
  description: "Entries found to differ from what the upstreams say, by how",
});
const repaired = meter.createCounter("timeline_audit_repaired", {
  description: "Home timelines rebuilt since an audit found them to differ",
});

/** What operators see of audits. */
export const observeAudit = {
  audited(report: Report): void {
    audited.add(report.judged);
    repaired.add(report.repaired.length);
    const all = report.differing.flatMap((differing) => differing.differences);
    for (const kind of KINDS) differences.add(all.filter((one) => one.kind === kind).length, { kind });
  },
};
