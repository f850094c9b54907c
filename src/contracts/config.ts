import { z } from "zod";
import { DAY, SECOND } from "../kernel/time.js";
import { type ConfigOf, factor, integer, type Variables } from "../kernel/variables.js";

export const STORED_TIMELINES_VARIABLES = {
  maxEntries: {
    name: "TIMELINE_MAX_ENTRIES",
    schema: integer(10, 100_000),
    default: "1000",
    about: "Drops that a stored timeline holds at most; the same for all processes",
  },
  globalRemoteShare: {
    name: "TIMELINE_GLOBAL_REMOTE_SHARE",
    schema: factor(1),
    default: "1",
    about:
      "Share of `TIMELINE_MAX_ENTRIES` that remote drops may take in `timeline:global`, above 0; 1: no bound for them; the same for all processes",
  },
  homeReplies: {
    name: "TIMELINE_HOME_REPLIES",
    schema: z.enum(["followed", "all"], { error: "must be followed or all" }),
    default: "followed",
    about:
      "followed: a home shows replies to its user and to those whom the user follows, and local and global show no replies to others; all: they show all replies; the same for all processes",
  },
  ttlMs: {
    name: "TIMELINE_KEY_TTL_MS",
    schema: integer(60 * SECOND, 365 * DAY),
    default: String(30 * DAY),
    about: "Time to live of a home that is not read, and of the keys beside it, ms",
  },
} as const satisfies Variables;

export type StoredTimelinesConfig = ConfigOf<typeof STORED_TIMELINES_VARIABLES>;

/** Returns how many remote drops `timeline:global` holds at most; undefined: there is no bound for them. */
export const remoteCapOf = ({
  maxEntries,
  globalRemoteShare,
}: Pick<StoredTimelinesConfig, "maxEntries" | "globalRemoteShare">): number | undefined =>
  globalRemoteShare < 1 ? Math.max(1, Math.floor(maxEntries * globalRemoteShare)) : undefined;
