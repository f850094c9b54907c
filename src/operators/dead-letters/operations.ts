import { z } from "zod";
import { DLQ_EVENTS, DLQ_REASONS } from "../../contracts/subjects.js";
import { AppError, codeOf, invalid, oneLine } from "../../kernel/errors.js";
import { DAY, HOUR, MINUTE, SECOND, sharedNow } from "../../kernel/time.js";
import { type Causes, oneByOne, type RedriveDeps, type RedriveOptions, redrive } from "./redrive.js";
import type { DeadLetterStore, StoredDeadLetter } from "./stored-dead-letter.js";

/** An unset filter excludes nothing. */
export interface Filters {
  readonly reason?: string | undefined;
  readonly event?: string | undefined;
  readonly error?: string | undefined;
  /** The earliest failure is in ms since the epoch. */
  readonly since?: number | undefined;
}

export interface Selection extends Filters {
  readonly seqs?: readonly number[] | undefined;
  readonly all?: boolean | undefined;
  readonly limit?: number | undefined;
}

export const SEQ_FAULT = "must be the sequence of a dead letter";

const UNITS: Readonly<Record<string, number>> = { s: SECOND, m: MINUTE, h: HOUR, d: DAY };
const A_DATE = z.union([z.iso.date(), z.iso.datetime({ offset: true })]);

const since = z.string().transform((text, context) => {
  const [, count, unit = ""] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  if (count !== undefined) return sharedNow() - Number(count) * (UNITS[unit] as number);
  if (A_DATE.safeParse(text).success) return Date.parse(text);
  context.addIssue({ code: "custom", message: "must be a time ago like 15m, 2h or 7d, or an RFC 3339 date" });
  return z.NEVER;
});

/** The command line and the NATS service share these arguments. */
export const FIELDS = {
  seq: z.number({ message: SEQ_FAULT }).int({ message: SEQ_FAULT }).positive({ message: SEQ_FAULT }),
  reason: z.enum(DLQ_REASONS, { message: `must be one of ${DLQ_REASONS.join(", ")}` }),
  event: z.enum(DLQ_EVENTS, { message: `must be one of ${DLQ_EVENTS.join(", ")}` }),
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

/** Returns the reason to refuse a selection that is empty or contradicts itself; undefined if there is none. */
export function selectionFault({ seqs = [], all, ...filters }: Selection): string | undefined {
  const filtered = [filters.reason, filters.event, filters.error, filters.since].some((value) => value !== undefined);
  if (seqs.length > 0 && (all || filtered)) return "name sequences or select by filters, not both";
  if (seqs.length > 0 || all || filtered) return undefined;
  return "say which dead letters: their sequences, a filter (reason, event, error, since), or all";
}

export interface Removal {
  readonly removed: number[];
  readonly failed: Causes;
}

interface RemoveOptions {
  readonly dryRun?: boolean | undefined;
  readonly stopping?: AbortSignal | undefined;
  readonly onProgress?: ((removal: Removal) => void) | undefined;
}

export type DeadLetterOperations = ReturnType<typeof createOperations>;

type Range = Parameters<DeadLetterStore["read"]>[0];

/** The command line and the NATS service share these operations. @throws AppError `unavailable` */
export function createOperations(deps: RedriveDeps) {
  const { store } = deps;
  return {
    /** Lists dead letters oldest first, as of the time of the call; bodies are empty unless asked for. */
    list: (filters: Filters, range?: Range) => list(store, filters, range),
    /** @throws AppError `notfound` */
    show: async (seq: number): Promise<StoredDeadLetter> => {
      const deadLetter = await store.find(seq);
      if (!deadLetter) throw missing([seq]);
      return deadLetter;
    },
    /** Returns sequences, oldest first. @throws AppError `notfound` for a missing one, `invalid`: see selectionFault */
    select: (selection: Selection) => select(store, selection),
    redrive: (seqs: readonly number[], options?: RedriveOptions) => redrive(deps, seqs, options),
    remove: (seqs: readonly number[], options?: RemoveOptions) => remove(store, seqs, options),
  };
}

async function* list(store: DeadLetterStore, filters: Filters, range?: Range): AsyncGenerator<StoredDeadLetter> {
  for await (const deadLetter of store.read(range)) if (matches(deadLetter, filters)) yield deadLetter;
}

async function select(store: DeadLetterStore, selection: Selection): Promise<number[]> {
  const fault = selectionFault(selection);
  if (fault) throw invalid("seqs", fault);
  const { seqs = [], limit = Number.POSITIVE_INFINITY } = selection;
  if (seqs.length > 0) return (await existing(store, seqs)).slice(0, limit);
  const selected: number[] = [];
  for await (const { summary } of list(store, selection)) {
    if (selected.length >= limit) break;
    selected.push(summary.seq);
  }
  return selected;
}

async function existing(store: DeadLetterStore, seqs: readonly number[]): Promise<number[]> {
  const sorted = [...new Set(seqs)].sort((a, b) => a - b);
  const absent: number[] = [];
  for (const seq of sorted) if (!(await store.find(seq))) absent.push(seq);
  if (absent.length > 0) throw missing(absent);
  return sorted;
}

const MAX_NAMED = 20;

function missing(seqs: readonly number[]): AppError {
  const more = seqs.length > MAX_NAMED ? ` and ${seqs.length - MAX_NAMED} more` : "";
  return new AppError("notfound", `the DLQ holds no dead letter ${seqs.slice(0, MAX_NAMED).join(", ")}${more}`);
}

async function remove(
  store: DeadLetterStore,
  seqs: readonly number[],
  { dryRun, stopping, onProgress }: RemoveOptions = {},
): Promise<Removal> {
  const removal: Removal = { removed: [], failed: [] };
  onProgress?.(removal);
  const notTried = await oneByOne(seqs, { stopping }, async (seq) => {
    try {
      if (!dryRun) await store.remove(seq);
      removal.removed.push(seq);
      return false;
    } catch (error) {
      removal.failed.push({ seq, why: oneLine(error) });
      return codeOf(error) === "unavailable";
    } finally {
      onProgress?.(removal);
    }
  });
  return { ...removal, failed: [...removal.failed, ...notTried] };
}
