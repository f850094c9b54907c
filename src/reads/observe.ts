import type { CacheEvent } from "../state/entries/page-cache.js";
import { counter, histogram, observedCounter, observedGauge } from "../telemetry/meters.js";

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
  cache({
    events,
    bytes,
  }: {
    readonly events: Readonly<Record<CacheEvent, number>>;
    readonly bytes: () => number;
  }): void {
    observedCounter(
      "timeline_read_cache",
      "Cached answers of Redis: found (hit), not found (miss), or removed because a key changed, a drop was deleted, room was needed (evicted) or a minute passed (expired)",
      { label: "event", values: () => events },
    );
    observedGauge("timeline_read_cache_bytes", "Memory of the answers of Redis that this process caches", bytes);
  },
  tombstones: (copied: () => number): void =>
    observedGauge(
      "timeline_tombstones_copied",
      "Tombstones that this process has a copy of; 0: in a Redis Cluster it asks about each page",
      copied,
    ),
  rebuilt(outcome: string, seconds: number): void {
    rebuilds.add(1, { outcome });
    if (outcome === "done") rebuildTime.record(seconds);
  },
};
