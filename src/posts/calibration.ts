import { codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import type { Calibration, CalibrationStore } from "./calibration.sql.js";
import type { MaintenanceLease } from "./cleanup.sql.js";
import { FIRST_ID } from "./drop-ids.js";

const DROPS_A_STEP = 200;
/** Reactions read by one statement at most, unless a single drop has more. */
const REACTIONS_AT_ONCE = 100_000;
export const CALIBRATION_STEPS = 20;

export interface CalibrationDeps {
  readonly drops: CalibrationStore;
  readonly lease: Pick<MaintenanceLease, "walkedTo" | "walkTo">;
  readonly log: Logger;
  readonly observe: { calibrated(found: Calibration): void };
}

interface Calibrated extends Calibration {
  readonly checked: number;
}

/** Each call continues where the last one stopped; after the last drop it starts again. */
export function createCalibration(deps: CalibrationDeps) {
  const { drops, lease, log, observe } = deps;
  return async (steps: number, mayContinue: () => Promise<boolean> = async () => true): Promise<Calibrated> => {
    const total = { checked: 0, corrected: 0, overdue: 0 };
    for (let step = 0; step < steps && (await mayContinue()); step++) {
      const span = await drops.next(await lease.walkedTo(), DROPS_A_STEP);
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
    if (total.corrected > 0) log.warn(total, "counts differed from the counted reactions, and were corrected");
    if (total.overdue > 0) log.warn(total, "reactions whose events never arrived were counted");
    return total;
  };
}

/** Drops that cannot be compared are skipped, so that the others are compared. */
async function calibrateSome({ drops, log }: CalibrationDeps, ids: readonly string[]): Promise<Calibration> {
  try {
    return await drops.calibrate(ids);
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    log.error({ drops: ids.length, first: ids[0], error: oneLine(error) }, "counts cannot be compared");
    return { corrected: 0, overdue: 0 };
  }
}

function portionsOf(span: Awaited<ReturnType<CalibrationStore["next"]>>): string[][] {
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
