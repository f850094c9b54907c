import { integer } from "./schemas.js";

/** What bounds reads of timelines that are not stored, or not stored as far down as they are read. */
export const READ_VARIABLES = {
  TIMELINE_READ_DEADLINE_MAX_MS: {
    schema: integer(100, 600_000),
    default: "60000",
    about: "The longest a caller of a read is waited for, whatever its deadline, ms (role api)",
  },
  TIMELINE_REBUILD_CONCURRENCY: {
    schema: integer(1, 256),
    default: "4",
    about: "Rebuilds, and pages read from the upstreams, under way at once in this process",
  },
  TIMELINE_REBUILD_QUEUE: {
    schema: integer(0, 100_000),
    default: "1000",
    about: "Further ones that wait for their turn; beyond that pages are degraded at once",
  },
  TIMELINE_UPSTREAM_CONCURRENCY: {
    schema: integer(1, 4_096),
    default: "128",
    about: "Calls of reads and rebuilds to the upstreams under way at once in this process",
  },
} as const;
