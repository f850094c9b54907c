import { codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { FIRST_ID } from "./drop-ids.js";
import type { Calibration, CalibrationStore, UpkeepLease } from "./ports.js";

/** Drops looked at in one step. */
const DROPS_A_STEP = 200;
/** Reactions read by one statement at most, unless a single drop has more. */
const REACTIONS_AT_ONCE = 100_000;
/** Steps in one round of the upkeep. */
export const CALIBRATION_STEPS = 20;

/** What the calibration works with. */
export interface CalibrationDeps {
  readonly drops: CalibrationStore;
  readonly lease: Pick<UpkeepLease, "walkedTo" | "walkTo">;
  readonly log: Logger;
  readonly observe: { calibrated(found: Calibration): void };
}

/** How many drops were looked at, and of how many the counts were wrong. */
export interface Calibrated extends Calibration {
  readonly checked: number;
}

/**
 * Makes the comparison of counts with what is counted. It goes on where the last one came to, at most so many steps of
 * 200 drops, and begins anew at the next call after the last drop.
 */
export function createCalibration(deps: CalibrationDeps) {
  const { drops, lease, log, observe } = deps;
  return async (steps: number, mayGoOn: () => Promise<boolean> = async () => true): Promise<Calibrated> => {
    const total = { checked: 0, corrected: 0, overdue: 0 };
    for (let step = 0; step < steps && (await mayGoOn()); step++) {
      const span = await drops.span(await lease.walkedTo(), DROPS_A_STEP);
      for (const ids of portionsOf(span)) {
        const found = await calibrateSome(deps, ids);
        total.corrected += found.corrected;
        total.overdue += found.overdue;
        observe.calibrated(found);
      }
      total.checked += span.length;
      const isLast = span.length < DROPS_A_STEP;
      await lease.walkTo(isLast ? FIRST_ID : (span.at(-1)?.dropId ?? FIRST_ID));
      if (isLast) break;
    }
    if (total.corrected > 0) log.warn(total, "counts differed from what was counted, and are corrected");
    if (total.overdue > 0) log.warn(total, "reactions whose events never arrived are counted");
    return total;
  };
}

/** Drops that cannot be compared are stepped over, so that they do not keep the others from it. */
async function calibrateSome({ drops, log }: CalibrationDeps, ids: readonly string[]): Promise<Calibration> {
  try {
    return await drops.calibrate(ids);
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    log.error({ drops: ids.length, first: ids[0], error: oneLine(error) }, "counts cannot be compared");
    return { corrected: 0, overdue: 0 };
  }
}

/** Cuts a span so that one statement reads a bounded number of reactions. */
function portionsOf(span: Awaited<ReturnType<CalibrationStore["span"]>>): string[][] {
  const portions: string[][] = [];
  let room = -1;
  for (const { dropId, reactions } of span) {
    if (reactions > room) {
      portions.push([]);
      room = REACTIONS_AT_ONCE;
    }
    portions.at(-1)?.push(dropId);
    room -= reactions;
  }
  return portions;
}
