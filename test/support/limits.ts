import type { Limits } from "../../src/roles/role.js";
import type { Limited } from "../../src/state/limits/limits.redis.js";

/** The variable that `support/entry` reads. */
export const LIMITS_VARIABLE = "AVION_TEST_LIMITS";

/** Environment of a process whose constants are these. */
export const limited = (limits: Limits): Readonly<Record<string, string>> => ({
  [LIMITS_VARIABLE]: JSON.stringify(limits),
});

/** Nothing is refused. */
export const unlimited: Limited = (_uses, { write }) => write();

/** Environment of a process that does so. */
export const UNLIMITED = {
  TIMELINE_LIMIT_DROPS: "off",
  TIMELINE_LIMIT_SAME_BODY: "off",
  TIMELINE_LIMIT_FOLLOWS: "off",
  TIMELINE_LIMIT_REACTIONS: "off",
} as const;
