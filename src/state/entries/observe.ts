import { observedCounter, observedGauge } from "../../telemetry/meters.js";
import type { CacheEvent } from "./page-cache.js";

export const observeReadCache = {
  pages({
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
};
