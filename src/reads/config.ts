import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

/** Bounds on reads of timelines that are not stored, or not as far down as they are read. */
export const TIMELINE_VARIABLES = {
  upstreamConcurrency: {
    name: "TIMELINE_UPSTREAM_CONCURRENCY",
    schema: integer(1, 4_096),
    default: "128",
    about: "Calls of reads and rebuilds to the upstreams at once in a process",
  },
  homeRepostWindow: {
    name: "TIMELINE_HOME_REPOST_WINDOW",
    schema: integer(0, 100),
    default: "40",
    about:
      "Places of a home in which pages show a drop and its reposts once, the newest of them (role api); 0: all are shown",
  },
  readCacheBytes: {
    name: "TIMELINE_READ_CACHE_BYTES",
    schema: integer(0, 2 ** 40),
    default: String(64 * 2 ** 20),
    about: "Memory for cached pages, bytes (role api); 0: none",
  },
} as const satisfies Variables;

export type TimelineConfig = ConfigOf<typeof TIMELINE_VARIABLES>;
