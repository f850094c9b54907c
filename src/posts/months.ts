import { lowestId } from "./drop-ids.js";

/** A month in UTC, with its first id and the first id after it; each table has a partition for it. */
export interface Month {
  readonly name: string;
  /** ms since the epoch. */
  readonly start: number;
  readonly end: number;
  readonly firstId: string;
  readonly endId: string;
}

const NAME = /^(\d{4})_(\d\d)$/;

export function monthOf(ms: number): Month {
  const date = new Date(ms);
  return monthAt(date.getUTCFullYear(), date.getUTCMonth());
}

/** `count` months, the first of which contains the time. */
export function monthsFrom(ms: number, count: number): Month[] {
  const date = new Date(ms);
  return Array.from({ length: count }, (_, ahead) => monthAt(date.getUTCFullYear(), date.getUTCMonth() + ahead));
}

export function monthNamed(name: string): Month | undefined {
  const [, year, month] = NAME.exec(name) ?? [];
  return year === undefined ? undefined : monthAt(Number(year), Number(month) - 1);
}

function monthAt(year: number, month: number): Month {
  const start = Date.UTC(year, month);
  const end = Date.UTC(year, month + 1);
  const name = new Date(start).toISOString().slice(0, 7).replace("-", "_");
  return { name, start, end, firstId: lowestId(start), endId: lowestId(end) };
}
