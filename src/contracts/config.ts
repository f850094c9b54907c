import { DAY, SECOND } from "../kernel/time.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const STORED_TIMELINES_VARIABLES = {
  maxEntries: {
    name: "TIMELINE_MAX_ENTRIES",
    schema: integer(10, 100_000),
    default: "1000",
    about: "Drops that a stored timeline holds at most; the same for all processes",
  },
  ttlMs: {
    name: "TIMELINE_KEY_TTL_MS",
    schema: integer(60 * SECOND, 365 * DAY),
    default: String(30 * DAY),
    about: "Time to live of a home that is not read, and of the keys beside it, ms",
  },
} as const satisfies Variables;

export type StoredTimelinesConfig = ConfigOf<typeof STORED_TIMELINES_VARIABLES>;
