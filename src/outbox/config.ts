import { type ConfigOf, flag, type Variables } from "../kernel/variables.js";

export const OUTBOX_VARIABLES = {
  relayChannels: {
    name: "TIMELINE_RELAY_CHANNELS",
    schema: flag,
    default: "false",
    about: "true: drops, follows and likes are published on the Redis channels too",
  },
} as const satisfies Variables;

export type OutboxConfig = ConfigOf<typeof OUTBOX_VARIABLES>;
