import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

/** Bounds on reads of timelines that are not stored, or not as far down as they are read. */
export const TIMELINE_VARIABLES = {
  readDeadlineMaxMs: {
    name: "TIMELINE_READ_DEADLINE_MAX_MS",
    schema: integer(100, 600_000),
    default: "60000",
    about: "Longest time a read takes, whatever its caller's deadline, ms (role api)",
  },
  rebuildConcurrency: {
    name: "TIMELINE_REBUILD_CONCURRENCY",
    schema: integer(1, 256),
    default: "4",
    about: "Rebuilds, and pages read from the upstreams, under way at once in this process",
  },
  rebuildQueue: {
    name: "TIMELINE_REBUILD_QUEUE",
    schema: integer(0, 100_000),
    default: "1000",
    about: "Rebuilds and pages that wait for their turn; beyond that pages are degraded at once",
  },
  upstreamConcurrency: {
    name: "TIMELINE_UPSTREAM_CONCURRENCY",
    schema: integer(1, 4_096),
    default: "128",
    about: "Calls of reads and rebuilds to the upstreams under way at once in this process",
  },
  readCacheBytes: {
    name: "TIMELINE_READ_CACHE_BYTES",
    schema: integer(0, 2 ** 40),
    default: String(64 * 2 ** 20),
    about: "Memory for pages that are read again and again, bytes (role api); 0: none. Unused with a Redis Cluster",
  },
} as const satisfies Variables;

export type TimelineConfig = ConfigOf<typeof TIMELINE_VARIABLES>;
