import type { Logger } from "../kernel/logger.js";
import { FIRST_ID } from "./drop-ids.js";
import type { Calibrate, Calibration, UpkeepLease } from "./ports.js";

/** Drops compared in one statement. */
const AT_ONCE = 200;

/** What the calibration works with. */
export interface CalibrationDeps {
  readonly calibrate: Calibrate;
  readonly lease: Pick<UpkeepLease, "walkedTo" | "walkTo">;
  readonly log: Logger;
  readonly observe: { calibrated(found: Pick<Calibration, "corrected" | "overdue">): void };
}

/** How many drops were looked at, and of how many the counts were wrong. */
export type Calibrated = Pick<Calibration, "checked" | "corrected" | "overdue">;

/**
 * Makes the comparison of counts with what is counted. It goes on where the last one came to, at most so many steps of
 * 200 drops, and begins anew at the next call after the last drop.
 */
export function createCalibration({ calibrate, lease, log, observe }: CalibrationDeps) {
  return async (steps: number, mayGoOn: () => Promise<boolean> = async () => true): Promise<Calibrated> => {
    const total = { checked: 0, corrected: 0, overdue: 0 };
    for (let step = 0; step < steps && (await mayGoOn()); step++) {
      const found = await calibrate(await lease.walkedTo(), AT_ONCE);
      await lease.walkTo(found.next ?? FIRST_ID);
      total.checked += found.checked;
      total.corrected += found.corrected;
      total.overdue += found.overdue;
      observe.calibrated(found);
      if (found.next === undefined) break;
    }
    if (total.corrected > 0) log.warn(total, "counts differed from what was counted, and are corrected");
    if (total.overdue > 0) log.warn(total, "reactions whose events never arrived are counted");
    return total;
  };
}
