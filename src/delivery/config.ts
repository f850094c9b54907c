import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const DELIVERY_VARIABLES = {
  maxAttempts: {
    name: "TIMELINE_MAX_ATTEMPTS",
    former: "TIMELINE_FANOUT_MAX_ATTEMPTS",
    schema: integer(1, 100),
    default: "5",
    about: "Attempts at a message before it is dead-lettered; analyses have 3",
  },
  concurrency: {
    name: "TIMELINE_CONSUMER_CONCURRENCY",
    former: "TIMELINE_FANOUT_CONCURRENCY",
    schema: integer(1, 1_024),
    default: "64",
    about:
      "Messages that one consumer of a process handles one by one at a time (n). A batch of first deliveries holds up to 4 n drops, 32 n follows or n/32 jobs; at most four are in flight",
  },
  retryBaseMs: {
    name: "TIMELINE_RETRY_BASE_MS",
    schema: integer(1, 60_000),
    default: "500",
    about: "First delay between attempts, ms; doubled each time, with jitter",
  },
} as const satisfies Variables;

export type DeliveryConfig = ConfigOf<typeof DELIVERY_VARIABLES>;
