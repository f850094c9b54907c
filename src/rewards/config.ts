import { z } from "zod";
import { USER_TIERS, type UserTier } from "../contracts/analysis.js";
import { type ConfigOf, list, type Variables } from "../kernel/variables.js";

const MULTIPLIER = /^([A-Z]+)=(\d{1,4}(?:\.\d{1,2})?)$/;

const multipliers = list.transform((parts, context): Readonly<Record<UserTier, number>> => {
  const found = new Map(parts.map((part) => [MULTIPLIER.exec(part)?.[1], Number(MULTIPLIER.exec(part)?.[2])]));
  if (
    found.size === USER_TIERS.length &&
    parts.length === USER_TIERS.length &&
    USER_TIERS.every((tier) => (found.get(tier) ?? 0) > 0)
  )
    return Object.fromEntries(found) as Record<UserTier, number>;
  context.addIssue({
    code: "custom",
    message: `must be a number above 0 for each of ${USER_TIERS.join(", ")}, as DRIFT=1,…`,
  });
  return z.NEVER;
});

export const REWARDS_VARIABLES = {
  multipliers: {
    name: "TIMELINE_REWARD_MULTIPLIERS",
    schema: multipliers,
    default: "DRIFT=1,LIFT=1.5,JET=2,ORBIT=3",
    about: "Multipliers of the 10 XP of an analysis, by tier (role rewards)",
  },
} as const satisfies Variables;

export type RewardsConfig = ConfigOf<typeof REWARDS_VARIABLES>;
