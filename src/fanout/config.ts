import { z } from "zod";
import { MAX_CHUNK_USERS } from "../contracts/fanout.js";
import { type ConfigOf, integer, thresholdUpTo, type Variables } from "../kernel/variables.js";

const FOLLOWERS = thresholdUpTo(1_000_000_000);

export const FANOUT_VARIABLES = {
  audience: {
    name: "TIMELINE_FANOUT_AUDIENCE",
    schema: z.enum(["all", "active"]),
    default: "all",
    about:
      "all: write to every follower's home; active: only to homes that were read since they were created or lost; the next read rebuilds the others",
  },
  chunkSize: {
    name: "TIMELINE_FANOUT_CHUNK_SIZE",
    schema: integer(1, MAX_CHUNK_USERS),
    default: "1000",
    about: "Followers in a page of UserService's lists, and in a job",
  },
  tierThreshold: {
    name: "TIMELINE_FANOUT_TIER_THRESHOLD",
    schema: FOLLOWERS,
    default: "off",
    about: "Followers above which an author is tiered, up to the pull threshold",
  },
  pullThreshold: {
    name: "TIMELINE_FANOUT_PULL_THRESHOLD",
    schema: FOLLOWERS,
    default: "500000",
    about: "Followers above which an author is pulled",
  },
  pullPressure: {
    name: "TIMELINE_FANOUT_PULL_PRESSURE",
    schema: thresholdUpTo(1_000_000_000_000),
    default: "off",
    about: "Writes to homes an hour (drops times followers) above which an author is pulled",
  },
} as const satisfies Variables;

export type FanoutConfig = ConfigOf<typeof FANOUT_VARIABLES>;

/** Reports thresholds with which an author would be pulled before being tiered. */
export function thresholdFaults({ tierThreshold, pullThreshold }: Partial<FanoutConfig>): string[] {
  if (tierThreshold === undefined || pullThreshold === undefined) return [];
  if (tierThreshold === Number.POSITIVE_INFINITY || tierThreshold < pullThreshold) return [];
  return ["TIMELINE_FANOUT_TIER_THRESHOLD: must be below TIMELINE_FANOUT_PULL_THRESHOLD, or nobody is tiered"];
}
