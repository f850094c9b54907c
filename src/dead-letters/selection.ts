import { z } from "zod";
import { EVENT_NAMES } from "../contracts/events.js";
import { DLQ_REASONS, WORK_EVENTS } from "../contracts/subjects.js";
import { DAY, HOUR, MINUTE, SECOND } from "../kernel/time.js";
import { type Letter, type Letters, MissingLetters } from "./dead-letter.js";

/** Which letters are meant; what is undefined excludes nothing. */
export interface Filters {
  readonly reason?: string | undefined;
  readonly event?: string | undefined;
  /** Text the error contains. */
  readonly error?: string | undefined;
  /** Failed then or later, in ms since the epoch. */
  readonly since?: number | undefined;
}

/** Letters by sequence, or by filters, or all of them. */
export interface Selection extends Filters {
  readonly seqs?: readonly number[] | undefined;
  readonly all?: boolean | undefined;
  /** At most so many, the oldest. */
  readonly limit?: number | undefined;
}

const UNITS: Readonly<Record<string, number>> = { s: SECOND, m: MINUTE, h: HOUR, d: DAY };
const EVENTS = [...EVENT_NAMES, ...Object.values(WORK_EVENTS)] as const;
const A_DATE = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);

const since = z.string().transform((text, context) => {
  const [, count, unit = ""] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  if (count !== undefined) return Date.now() - Number(count) * (UNITS[unit] as number);
  if (A_DATE.safeParse(text).success) return Date.parse(text);
  context.addIssue({ code: "custom", message: "must be a time ago like 15m, 2h or 7d, or an RFC 3339 date" });
  return z.NEVER;
});

/** What letters are named and worked on with, wherever it is said. */
export const FIELDS = {
  seq: z
    .number({ message: "must be a letter's sequence" })
    .int({ message: "must be a letter's sequence" })
    .positive({ message: "must be a letter's sequence" }),
  reason: z.enum(DLQ_REASONS, { message: `must be one of ${DLQ_REASONS.join(", ")}` }),
  event: z.enum(EVENTS, { message: `must be one of ${EVENTS.join(", ")}` }),
  error: z.string().min(1, { message: "must not be empty" }),
  since,
  rate: z
    .number({ message: "must be a number of letters a second" })
    .positive({ message: "must be more than 0" })
    .max(100_000, { message: "must be at most 100000" }),
} as const;

/** True where a letter passes every filter. */
export function matches({ listed, failedAt }: Letter, filters: Filters): boolean {
  return (
    (filters.reason === undefined || listed.reason === filters.reason) &&
    (filters.event === undefined || listed.event === filters.event) &&
    (filters.error === undefined || listed.error.includes(filters.error)) &&
    (filters.since === undefined || failedAt >= filters.since)
  );
}

/** Says why letters cannot be changed by this selection; undefined where they can. */
export function selectionFault({ seqs = [], all, ...filters }: Selection): string | undefined {
  const filtered = [filters.reason, filters.event, filters.error, filters.since].some((value) => value !== undefined);
  if (seqs.length > 0 && (all || filtered)) return "name letters by their sequences or select them, not both";
  if (seqs.length > 0 || all || filtered) return undefined;
  return "say which letters: their sequences, a filter (reason, event, error, since), or all";
}

/**
 * The sequences meant, oldest first, each once.
 *
 * @throws MissingLetters where one was named that is not there; nothing is to be done then.
 */
export async function selectSeqs(letters: Letters, selection: Selection): Promise<number[]> {
  const { seqs = [], limit = Number.POSITIVE_INFINITY } = selection;
  if (seqs.length > 0) return (await existing(letters, seqs)).slice(0, limit);
  const chosen: number[] = [];
  for await (const letter of letters.read()) {
    if (chosen.length >= limit) break;
    if (matches(letter, selection)) chosen.push(letter.listed.seq);
  }
  return chosen;
}

async function existing(letters: Letters, seqs: readonly number[]): Promise<number[]> {
  const sorted = [...new Set(seqs)].sort((a, b) => a - b);
  const missing: number[] = [];
  for (const seq of sorted) if (!(await letters.find(seq))) missing.push(seq);
  if (missing.length > 0) throw new MissingLetters(missing);
  return sorted;
}
