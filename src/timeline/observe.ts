import { counter, histogram, observedCounter, observedGauge } from "../kernel/meters.js";
import type { CacheEvent } from "./page-cache.js";

const reads = counter(
  "timeline_reads",
  "Pages by timeline and outcome: complete (hit), complete and read wholly below the stored part (beyond), rebuilt first, or degraded",
);
const rebuilds = counter("timeline_rebuilds", "Rebuilds of a timeline by outcome");
const rebuildTime = histogram(
  "timeline_rebuild_seconds",
  "Time a rebuild took, in seconds",
  [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25],
);

export const observeTimeline = {
  read: (timeline: string, outcome: string): void => reads.add(1, { timeline, outcome }),
  cache({
    events,
    bytes,
  }: {
    readonly events: Readonly<Record<CacheEvent, number>>;
    readonly bytes: () => number;
  }): void {
    observedCounter(
      "timeline_read_cache",
      "Cached answers of Redis: read from there (hit) or not (miss); dropped since a key of theirs changed, a drop was deleted, for want of room (evicted), or after a minute (expired)",
      { label: "event", values: () => events },
    );
    observedGauge(
      "timeline_read_cache_bytes",
      "Memory of the answers of Redis that this process holds, in bytes",
      bytes,
    );
  },
  rebuilt(outcome: string, seconds: number): void {
    rebuilds.add(1, { outcome });
    if (outcome === "done") rebuildTime.record(seconds);
  },
};
