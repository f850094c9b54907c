import { v7 } from "uuid";
import { dateOfId } from "../kernel/ids.js";
import { MINUTE } from "../kernel/time.js";

/** Before every id. */
export const FIRST_ID = "00000000-0000-0000-0000-000000000000";
/** After every id. */
export const LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

const MAX_MS = 2 ** 48 - 1;

/** A clock that steps back farther is followed: ids far ahead of it would be taken for drops of the future. */
const MAX_STEP_BACK_MS = MINUTE;

/**
 * Makes ids in the order of their making, within a millisecond and when the clock steps back too, so that a burst
 * shows in the order it was posted.
 *
 * @returns takes the time in ms since the epoch
 */
export function createDropIds(): (now: number) => string {
  let msecs = 0;
  let seq = 0;
  return (now) => {
    const goesOn = now <= msecs && msecs - now <= MAX_STEP_BACK_MS;
    seq = goesOn ? seq + 1 : 0;
    msecs = goesOn ? msecs : now;
    return v7({ msecs, seq });
  };
}

/** An id of a drop that was created elsewhere at this time, in ms since the epoch. */
export const importedId = (createdAt: number): string => v7({ msecs: createdAt });

/** When a drop was created, in ms since the epoch; the id must be one of ours. */
export const createdAtOf = (dropId: string): number => dateOfId(dropId) ?? 0;

/** The lowest id of a millisecond; of one beyond all ids, what is beyond them. */
export function lowestId(ms: number): string {
  if (ms > MAX_MS) return LAST_ID;
  const hex = ms.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** True for a UUID in lower case, the form ids are compared in. */
export const isUuid = (text: string): boolean => UUID.test(text);

/** The lowest and the highest of some ids, which must be in lower case. */
export function spanOf(ids: readonly string[]): [lowest: string, highest: string] {
  let [lowest, highest] = [LAST_ID, FIRST_ID];
  for (const id of ids) {
    if (id < lowest) lowest = id;
    if (id > highest) highest = id;
  }
  return [lowest, highest];
}
