import { counter, histogram } from "../telemetry/meters.js";

const reads = counter(
  "timeline_reads",
  "Pages: complete (hit), complete and read wholly below the stored part (beyond), rebuilt first, or degraded",
);
const rebuilds = counter("timeline_rebuilds", "Rebuilds of a timeline");
const rebuildTime = histogram(
  "timeline_rebuild_seconds",
  "Time a rebuild took",
  [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25],
);

export const observeTimeline = {
  read: (timeline: string, outcome: string): void => reads.add(1, { timeline, outcome }),
  rebuilt(outcome: string, seconds: number): void {
    rebuilds.add(1, { outcome });
    if (outcome === "done") rebuildTime.record(seconds);
  },
};
