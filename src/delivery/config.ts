import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const DELIVERY_VARIABLES = {
  maxAttempts: {
    name: "TIMELINE_FANOUT_MAX_ATTEMPTS",
    schema: integer(1, 100),
    default: "5",
    about: "Attempts at an event before it is dead-lettered",
  },
  concurrency: {
    name: "TIMELINE_FANOUT_CONCURRENCY",
    schema: integer(1, 1_024),
    default: "64",
    about:
      "Messages that a consumer of this process handles one by one at a time; for batches of first deliveries: times 4 for drops, times 32 for follows, a 32nd for jobs, and up to four batches in hand",
  },
  retryBaseMs: {
    name: "TIMELINE_RETRY_BASE_MS",
    schema: integer(1, 60_000),
    default: "500",
    about: "First delay between attempts, ms; doubled each time, with jitter",
  },
} as const satisfies Variables;

export type DeliveryConfig = ConfigOf<typeof DELIVERY_VARIABLES>;
