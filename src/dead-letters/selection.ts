import { z } from "zod";
import { EVENT_NAMES } from "../contracts/events.js";
import { DLQ_REASONS, WORK_EVENTS } from "../contracts/subjects.js";
import { DAY, HOUR, MINUTE, SECOND } from "../kernel/time.js";
import type { StoredDeadLetter } from "./dead-letter.js";

/** An unset filter excludes nothing. */
export interface Filters {
  readonly reason?: string | undefined;
  readonly event?: string | undefined;
  readonly error?: string | undefined;
  /** The earliest failure, in ms since the epoch. */
  readonly since?: number | undefined;
}

export interface Selection extends Filters {
  readonly seqs?: readonly number[] | undefined;
  readonly all?: boolean | undefined;
  readonly limit?: number | undefined;
}

export const SEQ_FAULT = "must be the sequence of a dead letter";

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

/** The arguments that the command line and the NATS service share. */
export const FIELDS = {
  seq: z.number({ message: SEQ_FAULT }).int({ message: SEQ_FAULT }).positive({ message: SEQ_FAULT }),
  reason: z.enum(DLQ_REASONS, { message: `must be one of ${DLQ_REASONS.join(", ")}` }),
  event: z.enum(EVENTS, { message: `must be one of ${EVENTS.join(", ")}` }),
  error: z.string().min(1, { message: "must not be empty" }),
  since,
  rate: z
    .number({ message: "must be a number of dead letters a second" })
    .positive({ message: "must be more than 0" })
    .max(100_000, { message: "must be at most 100000" }),
} as const;

export function matches({ summary, failedAt }: StoredDeadLetter, filters: Filters): boolean {
  return (
    (filters.reason === undefined || summary.reason === filters.reason) &&
    (filters.event === undefined || summary.event === filters.event) &&
    (filters.error === undefined || summary.error.includes(filters.error)) &&
    (filters.since === undefined || failedAt >= filters.since)
  );
}

/** The reason to refuse a selection that is empty or contradicts itself; undefined if there is none. */
export function selectionFault({ seqs = [], all, ...filters }: Selection): string | undefined {
  const filtered = [filters.reason, filters.event, filters.error, filters.since].some((value) => value !== undefined);
  if (seqs.length > 0 && (all || filtered)) return "name sequences or select by filters, not both";
  if (seqs.length > 0 || all || filtered) return undefined;
  return "say which dead letters: their sequences, a filter (reason, event, error, since), or all";
}
