import { z } from "zod";
import { DLQ_EVENTS, DLQ_REASONS } from "../../contracts/subjects.js";
import { DAY, HOUR, MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import type { StoredDeadLetter } from "./stored-dead-letter.js";

interface Filter<Value> {
  readonly schema: z.ZodType<Value>;
  /** Argument and description of the command line's option. */
  readonly option: readonly [argument: string, about: string];
  keeps(deadLetter: StoredDeadLetter, value: Value): boolean;
}

const filter = <Value>(declared: Filter<Value>): Filter<Value> => declared;

const UNITS: Readonly<Record<string, number>> = { s: SECOND, m: MINUTE, h: HOUR, d: DAY };
const A_DATE = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);

/** The command line, the NATS service and the console take these filters. */
export const FILTERS = {
  reason: filter({
    schema: z.enum(DLQ_REASONS, { message: `must be one of ${DLQ_REASONS.join(", ")}` }),
    option: ["<reason>", "only those of this reason"],
    keeps: ({ summary }, reason) => summary.reason === reason,
  }),
  event: filter({
    schema: z.enum(DLQ_EVENTS, { message: `must be one of ${DLQ_EVENTS.join(", ")}` }),
    option: ["<event>", "only those of this event"],
    keeps: ({ summary }, event) => summary.event === event,
  }),
  error: filter({
    schema: z.string().min(1, { message: "must not be empty" }),
    option: ["<text>", "only those whose error contains this text"],
    keeps: ({ summary }, text) => summary.error.includes(text),
  }),
  since: filter({
    schema: z.string().transform((text, context) => {
      const [, count, unit = ""] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
      if (count !== undefined) return sharedNow() - Number(count) * (UNITS[unit] as number);
      if (A_DATE.safeParse(text).success) return Date.parse(text);
      context.addIssue({ code: "custom", message: "must be a time ago like 15m, 2h or 7d, or an RFC 3339 date" });
      return z.NEVER;
    }),
    option: ["<when>", "only those that failed then or later: 15m, 2h, 7d (ago), or a date"],
    keeps: ({ failedAt }, ms) => failedAt >= ms,
  }),
};

type FilterName = keyof typeof FILTERS;
const NAMES = Object.keys(FILTERS) as FilterName[];
export const FILTER_NAMES = NAMES.join(", ");

type Shape = { readonly [Name in FilterName]: z.ZodOptional<(typeof FILTERS)[Name]["schema"]> };
export const FILTER_SHAPE = Object.fromEntries(
  NAMES.map((name) => [name, FILTERS[name].schema.optional()]),
) as unknown as Shape;

/** An unset filter excludes nothing. `since` is in ms since the epoch. */
export type Filters = { readonly [Name in FilterName]?: z.output<Shape[Name]> };

export interface Selection extends Filters {
  readonly seqs?: readonly number[] | undefined;
  readonly all?: boolean | undefined;
  readonly limit?: number | undefined;
}

export function matches(deadLetter: StoredDeadLetter, filters: Filters): boolean {
  return NAMES.every((name) => {
    const [value, { keeps }] = [filters[name], FILTERS[name] as Filter<unknown>];
    return value === undefined || keeps(deadLetter, value);
  });
}

/** Returns the reason to refuse a selection that is empty or contradicts itself; undefined if there is none. */
export function selectionFault({ seqs = [], all, ...filters }: Selection): string | undefined {
  const filtered = NAMES.some((name) => filters[name] !== undefined);
  if (seqs.length > 0 && (all || filtered)) return "name sequences or select by filters, not both";
  if (seqs.length > 0 || all || filtered) return undefined;
  return `say which dead letters: their sequences, a filter (${FILTER_NAMES}), or all`;
}

const SEQ_FAULT = "must be the sequence of a dead letter";

export const SEQ = z.number({ message: SEQ_FAULT }).int({ message: SEQ_FAULT }).positive({ message: SEQ_FAULT });

export const RATE = z
  .number({ message: "must be a number of dead letters a second" })
  .positive({ message: "must be more than 0" })
  .max(100_000, { message: "must be at most 100000" });
