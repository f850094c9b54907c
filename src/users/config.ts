import { MAX_FOLLOWING } from "../contracts/timelines.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const USERS_VARIABLES = {
  maxFollowing: {
    name: "TIMELINE_MAX_FOLLOWING",
    schema: integer(1, MAX_FOLLOWING),
    default: "7500",
    about: "Users that a user can follow at most",
  },
} as const satisfies Variables;

export type UsersConfig = ConfigOf<typeof USERS_VARIABLES>;
