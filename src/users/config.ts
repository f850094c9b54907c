import { MAX_FOLLOWING } from "../contracts/timelines.js";
import { type ConfigOf, integer, limit, type Variables } from "../kernel/variables.js";

/** All of them are read when a home is built. */
const MAX_RELATIONS = 100_000;

export const USERS_VARIABLES = {
  maxFollowing: {
    name: "TIMELINE_MAX_FOLLOWING",
    schema: integer(1, MAX_FOLLOWING),
    default: "7500",
    about: "Users that a user can follow at most",
  },
  limitFollows: {
    name: "TIMELINE_LIMIT_FOLLOWS",
    schema: limit,
    default: "400/24h",
    about: "Follows of a user at most, as number/time (s, m, h, d), or off",
  },
  maxRelations: {
    name: "TIMELINE_MAX_RELATIONS",
    schema: integer(1, MAX_RELATIONS),
    default: "10000",
    about: "Blocks and mutes together that a user can have at most",
  },
} as const satisfies Variables;

export type UsersConfig = ConfigOf<typeof USERS_VARIABLES>;
