import { webOrigin } from "../kernel/urls.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const ANALYSIS_VARIABLES = {
  atprotoUrl: {
    name: "TIMELINE_ATPROTO_URL",
    schema: webOrigin,
    default: "https://public.api.bsky.app",
    about: "AppView of the AT Protocol, which is asked for the posts of a DID",
  },
  sourceRate: {
    name: "TIMELINE_ANALYSIS_SOURCE_RATE",
    schema: integer(1, 10_000_000),
    default: "5000",
    about: "Calls an hour to the AT Protocol, by all processes together",
  },
} as const satisfies Variables;

export type AnalysisConfig = ConfigOf<typeof ANALYSIS_VARIABLES>;
