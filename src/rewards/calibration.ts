import type { CalibrationStore } from "./calibration.sql.js";

const USERS_A_STEP = 1_000;
const STEPS = 10;
const MAX_KNOWN = 10_000;

/**
 * Each call compares the totals of the next users with their transactions, and begins again after the last one. Users
 * who differed before are compared each time. Returns how many are known to differ.
 */
export function createCalibration(
  store: CalibrationStore,
  { users = USERS_A_STEP, steps = STEPS }: { readonly users?: number; readonly steps?: number } = {},
): () => Promise<number> {
  let known = new Set<string>();
  let after = "";
  return async () => {
    if (known.size > 0) known = new Set(await store.driftedAmong([...known]));
    for (let step = 0; step < steps; step++) {
      const upTo = await store.endOfNext(after, users);
      for (const user of await store.driftedIn({ after, upTo })) if (known.size < MAX_KNOWN) known.add(user);
      after = upTo ?? "";
      if (upTo === undefined) break;
    }
    return known.size;
  };
}
