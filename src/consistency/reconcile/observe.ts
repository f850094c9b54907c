import { metrics } from "@opentelemetry/api";
import type { Reconciled } from "./reconcile.js";
import type { Cause } from "./suspects.js";

const meter = metrics.getMeter("avion-timeline");
const windows = meter.createCounter("timeline_suspect_windows", {
  description: "Stretches of time in which events may have been lost on Redis Pub/Sub, by cause",
});
const events = meter.createCounter("timeline_reconciled_events", {
  description: "Changes the upstreams told of, by whether the log had them",
});

/** What operators see of reconciliation. */
export const observeReconcile = {
  suspected(cause: Cause): void {
    windows.add(1, { cause });
  },
  reconciled({ changes, admitted }: Reconciled): void {
    events.add(admitted, { outcome: "admitted" });
    events.add(changes - admitted, { outcome: "known" });
  },
};
