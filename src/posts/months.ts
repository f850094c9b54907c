import { lowestId } from "./drop-ids.js";

/** A month of drops, in UTC: what one partition of each table holds. */
export interface Month {
  /** `2026_01` */
  readonly name: string;
  /** In ms since the epoch. */
  readonly start: number;
  /** The start of the next. */
  readonly end: number;
  /** The lowest id in it. */
  readonly firstId: string;
  /** The lowest id after it. */
  readonly endId: string;
}

const NAME = /^(\d{4})_(\d\d)$/;

/** The month a time is in, in ms since the epoch. */
export function monthOf(ms: number): Month {
  const date = new Date(ms);
  return monthAt(date.getUTCFullYear(), date.getUTCMonth());
}

/** So many months from the one a time is in. */
export function monthsFrom(ms: number, count: number): Month[] {
  const date = new Date(ms);
  return Array.from({ length: count }, (_, ahead) => monthAt(date.getUTCFullYear(), date.getUTCMonth() + ahead));
}

/** The month of a partition's name; undefined for any other text. */
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
