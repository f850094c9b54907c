import { type ConfigOf, flag, type Variables } from "../kernel/variables.js";

export const OUTBOX_VARIABLES = {
  relayChannels: {
    name: "TIMELINE_RELAY_CHANNELS",
    schema: flag,
    default: "false",
    about: "Whether drops and follows are announced on the Redis channels too (roles users, posts); true or false",
  },
} as const satisfies Variables;

export type OutboxConfig = ConfigOf<typeof OUTBOX_VARIABLES>;
