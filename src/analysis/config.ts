import { webOrigin } from "../kernel/urls.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const ANALYSIS_VARIABLES = {
  concurrency: {
    name: "TIMELINE_ANALYSIS_CONCURRENCY",
    schema: integer(2, 4_096),
    default: "256",
    about:
      "Analyses that a process holds at once, including those that wait for a source; at most half of them are of the AT Protocol (role analysis)",
  },
  atprotoUrl: {
    name: "TIMELINE_ATPROTO_URL",
    schema: webOrigin,
    default: "https://public.api.bsky.app",
    about: "AppView of the AT Protocol, which is asked for the posts of a DID (role analysis)",
  },
  sourceRate: {
    name: "TIMELINE_ANALYSIS_SOURCE_RATE",
    schema: integer(1, 10_000_000),
    default: "5000",
    about: "Calls an hour to the AT Protocol, by all processes together (role analysis)",
  },
} as const satisfies Variables;

export type AnalysisConfig = ConfigOf<typeof ANALYSIS_VARIABLES>;
