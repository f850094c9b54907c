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
      "Messages that a consumer of this process handles one by one at the same time. A batch of first deliveries has 4 times as many drops, 32 times as many follows, or a 32nd as many jobs; up to four batches are in hand",
  },
  retryBaseMs: {
    name: "TIMELINE_RETRY_BASE_MS",
    schema: integer(1, 60_000),
    default: "500",
    about: "First delay between attempts, ms; doubled each time, with jitter",
  },
} as const satisfies Variables;

export type DeliveryConfig = ConfigOf<typeof DELIVERY_VARIABLES>;
