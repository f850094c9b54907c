import { oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { DAY, MINUTE, pause } from "../kernel/time.js";
import type { ListName } from "./lists.sql.js";
import type { Drift, MaintenanceStore } from "./maintenance.sql.js";
import type { ObserveUsers } from "./observe.js";

/**
 * Inactive edges are kept this long. In the follower lists they keep older versions of their pair from being applied:
 * twice as long as a dead letter can be redriven.
 */
export const KEPT_MS: Readonly<Record<ListName, number>> = { following: 30 * DAY, followers: 60 * DAY };

const PRUNED_AT_ONCE = 1_000;
const MAX_PRUNES = 20;
const SAMPLE = 50;
const EVERY_MS = MINUTE;

export interface MaintenanceDeps {
  readonly store: MaintenanceStore;
  readonly log: Logger;
  readonly observe: Pick<ObserveUsers, "pruned" | "drifted">;
}

/** Removes old inactive edges, and compares some counts with the rows. Rejects while the database is away. */
export async function maintain(
  { store, log, observe }: MaintenanceDeps,
  stopping?: AbortSignal,
): Promise<{ readonly pruned: number; readonly drifts: readonly Drift[] }> {
  let pruned = 0;
  const drifts: Drift[] = [];
  for (const list of ["following", "followers"] as const) {
    for (let time = 0; time < MAX_PRUNES && !stopping?.aborted; time++) {
      const gone = await store.prune(list, KEPT_MS[list], PRUNED_AT_ONCE);
      observe.pruned(list, gone);
      pruned += gone;
      if (gone < PRUNED_AT_ONCE) break;
    }
    if (!stopping?.aborted) drifts.push(...(await store.calibrate(list, SAMPLE)));
  }
  for (const { list, user, counted, rows } of drifts) {
    observe.drifted(list, counted - rows);
    log.warn({ list, user: encodeId(user), counted, rows }, "a count differed from its rows, and was corrected");
  }
  return { pruned, drifts };
}

/** Any number of processes may run it. */
export function startMaintenance(deps: MaintenanceDeps, everyMs: number = EVERY_MS): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await pause(everyMs * (0.5 + Math.random()), stopping.signal);
      if (stopping.signal.aborted) return;
      await maintain(deps, stopping.signal).catch((error: unknown) => {
        deps.log.debug({ error: oneLine(error) }, "the maintenance of the follow graph failed");
      });
    }
  };
  const running = run();
  return {
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}
