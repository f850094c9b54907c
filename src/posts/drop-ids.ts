import { v7 } from "uuid";
import { dateOfId } from "../kernel/ids.js";
import { MINUTE } from "../kernel/time.js";

export const FIRST_ID = "00000000-0000-0000-0000-000000000000";
export const LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

const MAX_MS = 2 ** 48 - 1;

/** Ids follow a clock that steps back farther: otherwise they would lie in the future. */
const MAX_STEP_BACK_MS = MINUTE;

/** Ids rise within a millisecond and when the clock steps back, too, so that a burst keeps its order. */
export function createDropIds(): (nowMs: number) => string {
  let msecs = 0;
  let seq = 0;
  return (now) => {
    const goesOn = now <= msecs && msecs - now <= MAX_STEP_BACK_MS;
    seq = goesOn ? seq + 1 : 0;
    msecs = goesOn ? msecs : now;
    return v7({ msecs, seq });
  };
}

export const importedId = (createdAt: number): string => v7({ msecs: createdAt });

export const createdAtOf = (dropId: string): number => dateOfId(dropId) ?? 0;

/** The lowest id of a millisecond, at most LAST_ID. */
export function lowestId(ms: number): string {
  if (ms > MAX_MS) return LAST_ID;
  const hex = ms.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** In lower case, the form in which ids are compared. */
export const isUuid = (text: string): boolean => UUID.test(text);

export function spanOf(ids: readonly string[]): [lowest: string, highest: string] {
  let [lowest, highest] = [LAST_ID, FIRST_ID];
  for (const id of ids) {
    if (id < lowest) lowest = id;
    if (id > highest) highest = id;
  }
  return [lowest, highest];
}
