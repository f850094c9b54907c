import { setImmediate as nextTurn } from "node:timers/promises";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../kernel/loop.js";
import { MINUTE } from "../kernel/time.js";
import type { createMaintenanceStore } from "./maintenance.sql.js";

const EVERY_MS = MINUTE;
const ROWS_A_STEP = 2_000;
const STEPS_A_ROUND = 50;

interface MaintenanceDeps {
  readonly store: ReturnType<typeof createMaintenanceStore>;
  readonly everyMs?: number | undefined;
  readonly log: Logger;
}

/** Removes old notifications, and those beyond the newest 1,000 of each user. Processes skip what others work on. */
export const startMaintenance = ({ store, everyMs = EVERY_MS, log }: MaintenanceDeps): Loop =>
  startLoop({
    work: async (stopping) => {
      for (const remove of [store.removeOld, store.trim])
        for (let step = 0; step < STEPS_A_ROUND && !stopping.aborted; step++) {
          // The embedded database answers without yielding to the event loop; other work gets a turn here.
          await nextTurn();
          if (!(await remove(ROWS_A_STEP))) break;
        }
    },
    everyMs,
    jitter: true,
    backoffCapMs: MINUTE,
    failed: warnOnce(log, "the maintenance of notifications waits for the database"),
  });
