import type { Limits } from "../../src/roles/role.js";

/** The variable that `support/entry` reads. */
export const LIMITS_VARIABLE = "AVION_TEST_LIMITS";

/** Environment of a process whose constants are these. */
export const limited = (limits: Limits): Readonly<Record<string, string>> => ({
  [LIMITS_VARIABLE]: JSON.stringify(limits),
});
