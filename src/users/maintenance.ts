import { oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { DAY, MINUTE } from "../kernel/time.js";
import type { Drift, MaintenanceStore } from "./maintenance.sql.js";
import { observeUsers } from "./observe.js";
import type { ListName } from "./reads.sql.js";

/** Inactive followers keep older versions from being applied: twice as long as a dead letter can be redriven. */
export const KEPT_MS: Readonly<Record<ListName, number>> = { following: 30 * DAY, followers: 60 * DAY };

const PRUNED_AT_ONCE = 1_000;
const MAX_PRUNES = 20;
const SAMPLE = 50;

interface MaintenanceDeps {
  readonly store: MaintenanceStore;
  readonly log: Logger;
}

/** Removes old inactive edges, and compares some counts with the rows. Rejects while the database is unavailable. */
export async function maintain(
  { store, log }: MaintenanceDeps,
  stopping?: AbortSignal,
): Promise<{ readonly pruned: number; readonly drifts: readonly Drift[] }> {
  let pruned = 0;
  const drifts: Drift[] = [];
  for (const list of ["following", "followers"] as const) {
    for (let time = 0; time < MAX_PRUNES && !stopping?.aborted; time++) {
      const gone = await store.prune(list, KEPT_MS[list], PRUNED_AT_ONCE);
      observeUsers.pruned(list, gone);
      pruned += gone;
      if (gone < PRUNED_AT_ONCE) break;
    }
    if (!stopping?.aborted) drifts.push(...(await store.calibrate(list, SAMPLE)));
  }
  for (const { list, user, counted, rows } of drifts) {
    observeUsers.drifted(list, counted - rows);
    log.warn({ list, user: encodeId(user), counted, rows }, "a count differed from its rows, and was corrected");
  }
  return { pruned, drifts };
}

/** Several processes may run it at once. */
export function startMaintenance(deps: MaintenanceDeps, everyMs = MINUTE): Loop {
  return startLoop({
    work: async (stopping) => {
      await maintain(deps, stopping);
    },
    everyMs,
    firstAfterMs: everyMs,
    jitter: true,
    failed: (error, inARow) => {
      if (inARow > 1) return;
      deps.log.warn({ error: oneLine(error) }, "the maintenance of the follow graph failed; it is tried again");
    },
  });
}
