import { AppError, invalid, oneLine } from "../kernel/errors.js";
import type { DeadLetterStore, StoredDeadLetter } from "./dead-letter.js";
import { type Causes, type RedriveDeps, type RedriveOptions, type Report, redrive } from "./redrive.js";
import { type Filters, matches, type Selection, selectionFault } from "./selection.js";

export interface Removal {
  readonly removed: number[];
  readonly failed: Causes;
}

export interface RemoveOptions {
  readonly dryRun?: boolean | undefined;
  readonly onProgress?: ((removal: Removal) => void) | undefined;
}

/** The operations of the command line and of the NATS service. @throws AppError `unavailable` */
export interface DeadLetterOperations {
  /** Oldest first, as of the time of the call; bodies are empty unless asked for. */
  list(filters: Filters, range?: Parameters<DeadLetterStore["read"]>[0]): AsyncIterable<StoredDeadLetter>;
  show(seq: number): Promise<StoredDeadLetter>;
  /** Sequences, oldest first. @throws AppError `notfound` for a missing one, `invalid`: see selectionFault */
  select(selection: Selection): Promise<number[]>;
  redrive(seqs: readonly number[], options?: RedriveOptions): Promise<Report>;
  remove(seqs: readonly number[], options?: RemoveOptions): Promise<Removal>;
}

export function createOperations(deps: RedriveDeps): DeadLetterOperations {
  const { store } = deps;
  return {
    list: (filters, range) => list(store, filters, range),
    show: async (seq) => {
      const found = await store.find(seq);
      if (!found) throw missing([seq]);
      return found;
    },
    select: (selection) => select(store, selection),
    redrive: (seqs, options) => redrive(deps, seqs, options),
    remove: (seqs, options) => remove(store, seqs, options),
  };
}

async function* list(
  store: DeadLetterStore,
  filters: Filters,
  range?: Parameters<DeadLetterStore["read"]>[0],
): AsyncGenerator<StoredDeadLetter> {
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
  { dryRun, onProgress }: RemoveOptions = {},
): Promise<Removal> {
  const removal: Removal = { removed: [], failed: [] };
  onProgress?.(removal);
  for (const seq of seqs) {
    try {
      if (!dryRun) await store.remove(seq);
      removal.removed.push(seq);
    } catch (error) {
      removal.failed.push({ seq, why: oneLine(error) });
    }
    onProgress?.(removal);
  }
  return removal;
}
