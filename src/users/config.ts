import { MAX_FOLLOWING } from "../contracts/timelines.js";
import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const USERS_VARIABLES = {
  maxFollowing: {
    name: "TIMELINE_MAX_FOLLOWING",
    schema: integer(1, MAX_FOLLOWING),
    default: "7500",
    about: "Maximum number of users a user can follow (role users)",
  },
  hotUserRate: {
    name: "TIMELINE_HOT_USER_RATE",
    schema: integer(1, 1_000_000),
    default: "200",
    about: "Follower changes a second above which those of a user are applied in a lane of their own (role users)",
  },
} as const satisfies Variables;

export type UsersConfig = ConfigOf<typeof USERS_VARIABLES>;
