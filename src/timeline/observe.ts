import { metrics } from "@opentelemetry/api";

const meter = metrics.getMeter("avion-timeline");
const reads = meter.createCounter("timeline_reads", {
  description:
    "Pages by timeline and outcome: complete (hit), complete and read wholly below the stored part (beyond), rebuilt first, or degraded",
});
const rebuilds = meter.createCounter("timeline_rebuilds", { description: "Rebuilds of a timeline by outcome" });
const rebuildTime = meter.createHistogram("timeline_rebuild_seconds", {
  description: "Time a rebuild took, in seconds",
  advice: { explicitBucketBoundaries: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25] },
});

export const observeTimeline = {
  read(timeline: string, outcome: string): void {
    reads.add(1, { timeline, outcome });
  },
  rebuilt(outcome: string, seconds: number): void {
    rebuilds.add(1, { outcome });
    if (outcome === "done") rebuildTime.record(seconds);
  },
};
