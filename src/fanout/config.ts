import { z } from "zod";
import { MAX_CHUNK_USERS } from "../contracts/fanout.js";
import { type ConfigOf, integer, thresholdUpTo, type Variables } from "../kernel/variables.js";

const FOLLOWERS = thresholdUpTo(1_000_000_000);

export const FANOUT_VARIABLES = {
  audience: {
    name: "TIMELINE_FANOUT_AUDIENCE",
    schema: z.enum(["all", "active"]),
    default: "all",
    about: "all: write to every follower's home; active: only to homes that were read since they were created or lost",
  },
  chunkSize: {
    name: "TIMELINE_FANOUT_CHUNK_SIZE",
    schema: integer(1, MAX_CHUNK_USERS),
    default: "1000",
    about:
      "Followers in a page of UserService's lists, and so in a chunk job; checks of publications read such pages, too",
  },
  tierThreshold: {
    name: "TIMELINE_FANOUT_TIER_THRESHOLD",
    schema: FOLLOWERS,
    default: "off",
    about:
      "Followers above which an author is tiered, up to the pull threshold; off: no author is tiered for their followers",
  },
  restRate: {
    name: "TIMELINE_FANOUT_REST_RATE",
    schema: integer(1, 1_000_000),
    default: "20000",
    about: "Maximum number of homes of the last tier that a process writes a second",
  },
  pullThreshold: {
    name: "TIMELINE_FANOUT_PULL_THRESHOLD",
    schema: FOLLOWERS,
    default: "100000",
    about: "Followers above which an author is pulled, not pushed; off: no author is pulled for their followers",
  },
  pullPressure: {
    name: "TIMELINE_FANOUT_PULL_PRESSURE",
    schema: thresholdUpTo(1_000_000_000_000),
    default: "off",
    about:
      "Writes to homes an hour (drops times followers) above which an author is pulled; off: no author is pulled for these",
  },
} as const satisfies Variables;

export type FanoutConfig = ConfigOf<typeof FANOUT_VARIABLES>;

/** Reports thresholds with which an author would be pulled before being tiered. */
export function thresholdFaults({ tierThreshold, pullThreshold }: Partial<FanoutConfig>): string[] {
  if (tierThreshold === undefined || pullThreshold === undefined) return [];
  if (tierThreshold === Number.POSITIVE_INFINITY || tierThreshold < pullThreshold) return [];
  return ["TIMELINE_FANOUT_TIER_THRESHOLD: must be below TIMELINE_FANOUT_PULL_THRESHOLD, or nobody is tiered"];
}
