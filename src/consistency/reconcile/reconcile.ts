import { messageId, type TimelineEvent } from "../../contracts/events.js";
import { CLOCK_SKEW_MS, NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { mapLimited } from "../../kernel/mapped.js";
import { MINUTE } from "../../kernel/time.js";
import type { Admit, ReadAdmitted, ReadChanges, Window } from "./ports.js";

interface ReconcileDeps {
  readonly readChanges: ReadChanges;
  readonly readAdmitted: ReadAdmitted;
  readonly admit: Admit;
}

/** What a reconciliation found. */
export interface Reconciled {
  /** Changes the upstreams told of. */
  readonly changes: number;
  /** Those of them the log had never been given, and has now. */
  readonly admitted: number;
}

/** So much of a window is held in memory at a time. */
const SLICE_MS = 10 * MINUTE;
/** An event is published a little after its change, and may wait for an outage on its way into the log. */
const ADMISSION_LAG_MS = 30 * MINUTE;
const ADMITTED_AT_ONCE = 32;

/**
 * Admits what the upstreams changed in a window and the log was never given.
 * What the log already holds is left alone, so that nothing is told twice;
 * admitting it again would change no timeline. Ends early once `stopping` aborts.
 */
export async function reconcile(
  deps: ReconcileDeps,
  window: Window,
  progress: (done: Reconciled, upTo: number) => void = () => undefined,
  stopping?: AbortSignal,
): Promise<Reconciled> {
  let total: Reconciled = { changes: 0, admitted: 0 };
  for (let since = window.since; since < window.until && !stopping?.aborted; since += SLICE_MS) {
    const until = Math.min(since + SLICE_MS, window.until);
    const found = await reconcileSlice(deps, { since, until }, stopping);
    total = { changes: total.changes + found.changes, admitted: total.admitted + found.admitted };
    progress(total, until);
  }
  return total;
}

async function reconcileSlice(
  { readChanges, readAdmitted, admit }: ReconcileDeps,
  slice: Window,
  stopping: AbortSignal | undefined,
): Promise<Reconciled> {
  const missing = new Map<string, TimelineEvent>();
  for await (const event of readChanges(slice)) {
    if (stopping?.aborted) break;
    missing.set(messageId(event), event);
  }
  const changes = missing.size;
  if (changes === 0) return { changes, admitted: 0 };
  const admitted = { since: slice.since - CLOCK_SKEW_MS, until: slice.until + ADMISSION_LAG_MS };
  await readAdmitted(admitted, (id) => {
    missing.delete(id);
    // A drop from elsewhere that an upstream lists too is not one of this server's own.
    if (id.startsWith("ap_drop_received:")) missing.delete(id.replace("ap_drop_received:", "drop_created:"));
    return missing.size > 0 && !stopping?.aborted;
  });
  // What the log holds is not known to the end.
  if (stopping?.aborted) return { changes, admitted: 0 };
  const now = Date.now();
  await mapLimited([...missing.values()], ADMITTED_AT_ONCE, (event) =>
    admit(event, slice.until < now - NOTIFY_WINDOW_MS || isHistory(event, now)),
  );
  return { changes, admitted: missing.size };
}

const isHistory = ({ name, payload }: TimelineEvent, now: number): boolean =>
  name === "drop_created" && payload.created_at < now - NOTIFY_WINDOW_MS;
