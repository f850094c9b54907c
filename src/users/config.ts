import { type ConfigOf, integer, type Variables } from "../kernel/variables.js";

export const USERS_VARIABLES = {
  maxFollowing: {
    name: "TIMELINE_MAX_FOLLOWING",
    schema: integer(1, 1_000_000),
    default: "7500",
    about: "How many people a user can follow (role users)",
  },
  hotUserRate: {
    name: "TIMELINE_HOT_USER_RATE",
    schema: integer(1, 1_000_000),
    default: "200",
    about: "Follower changes a second above which a user's are applied apart from the others (role users)",
  },
} as const satisfies Variables;

export type UsersConfig = ConfigOf<typeof USERS_VARIABLES>;
