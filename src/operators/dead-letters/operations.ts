import { AppError, codeOf, invalid, oneLine } from "../../kernel/errors.js";
import { type Causes, oneByOne, type RedriveDeps, type RedriveOptions, redrive } from "./redrive.js";
import { type Filters, matches, type Selection, selectionFault } from "./selection.js";
import type { DeadLetterStore, StoredDeadLetter } from "./stored-dead-letter.js";

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
