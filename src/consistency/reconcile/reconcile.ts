import { messageId, type TimelineEvent } from "../../contracts/events.js";
import { CLOCK_SKEW_MS, NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/concurrency.js";
import { MINUTE } from "../../kernel/time.js";

/** [since, until), in ms since the epoch. */
export interface TimeRange {
  readonly since: number;
  readonly until: number;
}

/** What the upstreams say has changed, in any order; nothing if an upstream cannot tell. */
export type ReadChanges = (range: TimeRange) => AsyncIterable<TimelineEvent>;

export type ReadAdmittedIds = (range: TimeRange) => AsyncIterable<string>;

/** Resolves after the PubAck. A silent event notifies nobody. */
export type Admit = (event: TimelineEvent, silent: boolean) => Promise<void>;

interface ReconcileDeps {
  readonly readChanges: ReadChanges;
  readonly readAdmittedIds: ReadAdmittedIds;
  readonly admit: Admit;
}

export interface Reconciled {
  readonly changes: number;
  readonly admitted: number;
}

interface ReconcileOptions {
  readonly progress?: (done: Reconciled, upTo: number) => void;
  readonly stopping?: AbortSignal | undefined;
}

/** Admits the changes of a time range that the log lacks; ends early once `stopping` aborts. */
export type Reconcile = (range: TimeRange, options?: ReconcileOptions) => Promise<Reconciled>;

const SLICE_MS = 10 * MINUTE;
/** An event is published a little after its change, and may wait for an outage on its way into the log. */
const ADMISSION_LAG_MS = 30 * MINUTE;
const ADMITTED_AT_ONCE = 32;

/** Events the log already holds are not admitted again, so that nobody is notified twice. */
export function createReconciliation(deps: ReconcileDeps): Reconcile {
  return async (range, { progress, stopping } = {}) => {
    let total: Reconciled = { changes: 0, admitted: 0 };
    for (let since = range.since; since < range.until && !stopping?.aborted; since += SLICE_MS) {
      const until = Math.min(since + SLICE_MS, range.until);
      const found = await reconcileSlice(deps, { since, until }, stopping);
      total = { changes: total.changes + found.changes, admitted: total.admitted + found.admitted };
      progress?.(total, until);
    }
    return total;
  };
}

async function reconcileSlice(
  { readChanges, readAdmittedIds, admit }: ReconcileDeps,
  slice: TimeRange,
  stopping: AbortSignal | undefined,
): Promise<Reconciled> {
  const missing = new Map<string, TimelineEvent>();
  for await (const event of readChanges(slice)) {
    if (stopping?.aborted) break;
    missing.set(messageId(event), event);
  }
  const changes = missing.size;
  if (changes === 0) return { changes, admitted: 0 };
  const admittedIn = { since: slice.since - CLOCK_SKEW_MS, until: slice.until + ADMISSION_LAG_MS };
  for await (const id of readAdmittedIds(admittedIn)) {
    missing.delete(id);
    // A remote drop that an upstream lists too is not one of this server's own.
    if (id.startsWith("ap_drop_received:")) missing.delete(id.replace("ap_drop_received:", "drop_created:"));
    if (missing.size === 0 || stopping?.aborted) break;
  }
  if (stopping?.aborted) return { changes, admitted: 0 };
  const now = Date.now();
  await mapLimited([...missing.values()], ADMITTED_AT_ONCE, (event) =>
    admit(event, slice.until < now - NOTIFY_WINDOW_MS || isHistory(event, now)),
  );
  return { changes, admitted: missing.size };
}

const isHistory = ({ name, payload }: TimelineEvent, now: number): boolean =>
  name === "drop_created" && payload.created_at < now - NOTIFY_WINDOW_MS;
