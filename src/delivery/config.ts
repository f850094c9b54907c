import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const DELIVERY_VARIABLES = {
  maxAttempts: {
    name: "TIMELINE_MAX_ATTEMPTS",
    former: "TIMELINE_FANOUT_MAX_ATTEMPTS",
    schema: integer(1, 100),
    default: "5",
    about: "Attempts at a message before it is dead-lettered; analyses have 3",
  },
  retryBaseMs: {
    name: "TIMELINE_RETRY_BASE_MS",
    schema: integer(1, 60_000),
    default: "500",
    about: "First delay between attempts, ms; doubled each time, with jitter",
  },
} as const satisfies Variables;

export type DeliveryConfig = ConfigOf<typeof DELIVERY_VARIABLES>;
