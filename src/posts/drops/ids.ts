import { v7 } from "uuid";
import { dateOfId } from "../../kernel/ids.js";
import { MINUTE } from "../../kernel/time.js";

export const FIRST_ID = "00000000-0000-0000-0000-000000000000";
export const LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff";

const MAX_MS = 2 ** 48 - 1;

/** Ids follow a clock that steps back by more than this: otherwise they would lie in the future. */
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

export function lowestId(ms: number): string {
  if (ms > MAX_MS) return LAST_ID;
  const hex = ms.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
}

export function spanOf(ids: readonly string[]): [lowest: string, highest: string] {
  let [lowest, highest] = [LAST_ID, FIRST_ID];
  for (const id of ids) {
    if (id < lowest) lowest = id;
    if (id > highest) highest = id;
  }
  return [lowest, highest];
}

/** A month (UTC). Each table has a partition for it, from `firstId` up to, but without, `endId`. Times are in ms. */
export type Month = ReturnType<typeof monthAt>;

const NAME = /^(\d{4})_(\d\d)$/;

export function monthOf(ms: number, ahead = 0): Month {
  const date = new Date(ms);
  return monthAt(date.getUTCFullYear(), date.getUTCMonth() + ahead);
}

export const monthsFrom = (ms: number, count: number): Month[] =>
  Array.from({ length: count }, (_, ahead) => monthOf(ms, ahead));

export function monthNamed(name: string): Month | undefined {
  const [, year, month] = NAME.exec(name) ?? [];
  return year === undefined ? undefined : monthAt(Number(year), Number(month) - 1);
}

function monthAt(year: number, month: number) {
  const start = Date.UTC(year, month);
  const end = Date.UTC(year, month + 1);
  const name = new Date(start).toISOString().slice(0, 7).replace("-", "_");
  return { name, start, end, firstId: lowestId(start), endId: lowestId(end) };
}
