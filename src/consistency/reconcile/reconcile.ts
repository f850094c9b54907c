import { messageId, type TimelineEvent } from "../../contracts/events.js";
import { CLOCK_SKEW_MS, NOTIFY_WINDOW_MS } from "../../contracts/times.js";
import { mapLimited, type Throttle } from "../../kernel/concurrency.js";
import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { DAY, HOUR, MINUTE, pause, SECOND, sharedNow } from "../../kernel/time.js";
import type { Unreconciled } from "../../state/index.js";
import { observeReconcile } from "../observe.js";

/** Range [since, until), in ms since the epoch. */
export interface TimeRange {
  readonly since: number;
  readonly until: number;
}

/** Returns a range with all changes since a time, in the time of an upstream whose clock may be ahead or behind. */
export const untilNow = (since: number): TimeRange => ({
  since: since - CLOCK_SKEW_MS,
  until: sharedNow() + CLOCK_SKEW_MS,
});

/** Yields the changes that the upstreams list, in any order; none of an upstream that lists no changes. */
export type ReadChanges = (range: TimeRange) => AsyncIterable<TimelineEvent>;

/** Event that the log stored under this sequence, at this time in ms since the epoch. */
export interface Logged {
  readonly event: TimelineEvent;
  readonly seq: number;
  readonly time: number;
}

/** Yields the events that the log admitted in a range, oldest first, without those that break the contract. */
export type ReadLogged = (range: TimeRange) => AsyncIterable<Logged>;

/** Admits an event. Resolves after the PubAck. A silent event notifies nobody. */
export type Admit = (event: TimelineEvent, silent: boolean) => Promise<void>;

interface ReconcileDeps {
  readonly readChanges: ReadChanges;
  readonly readLogged: ReadLogged;
  readonly admit: Admit;
}

export interface Reconciled {
  readonly changes: number;
  readonly admitted: number;
}

interface ReconcileOptions {
  readonly progress?: (done: Reconciled, upTo: number) => void;
  readonly stopping?: AbortSignal | undefined;
  /** Delays each change that is read. */
  readonly throttle?: Throttle;
  /** True if the log cannot hold the changes yet: it is not compared. */
  readonly unlogged?: boolean;
  /** True: nobody is notified, even of new drops. */
  readonly silent?: boolean;
  readonly sliceMs?: number;
}

/** Admits the changes of a time range that the log lacks; ends early once `stopping` aborts. */
export type Reconcile = (range: TimeRange, options?: ReconcileOptions) => Promise<Reconciled>;

const SLICE_MS = 10 * MINUTE;
/** Maximum number of changes in a long slice, of a quiet time. A slice with more is read again in short ones. */
const MOST_IN_LONG_SLICE = 10_000;
/** Maximum number of changes in memory. */
const MOST_IN_MEMORY = 10_000;
const CHANGES_A_PAUSE = 100;
/** Maximum time between the change of an event and its admission, in an outage. */
export const ADMISSION_LAG_MS = HOUR;
const ADMITTED_AT_ONCE = 32;

/** Composes a reconciliation. Events that the log holds are not admitted again, so that nobody is notified twice. */
export function createReconciliation(deps: ReconcileDeps): Reconcile {
  return async (range, options = {}) => {
    const { progress, stopping, silent = false, sliceMs = SLICE_MS } = options;
    let total: Reconciled = { changes: 0, admitted: 0 };
    const news = sharedNow() - NOTIFY_WINDOW_MS;
    let length = sliceMs;
    for (let since = range.since; since < range.until && !stopping?.aborted; ) {
      const end = since < news ? Math.min(range.until, news) : range.until;
      const slice = { since, until: Math.min(since + length, end), silent: silent || since < news };
      const result = await reconcileSlice(deps, slice, { ...options, isLong: length > sliceMs });
      if (result === "too many") {
        length = sliceMs;
        continue;
      }
      if (!result) break;
      total = { changes: total.changes + result.changes, admitted: total.admitted + result.admitted };
      progress?.(total, slice.until);
      length = result.changes === 0 ? 2 * length : sliceMs;
      since = slice.until;
    }
    return total;
  };
}

interface Slice extends TimeRange {
  readonly silent: boolean;
}

type SliceOptions = Pick<ReconcileOptions, "stopping" | "throttle" | "unlogged"> & { readonly isLong: boolean };

/** Resolves to undefined if `stopping` aborts. */
async function reconcileSlice(
  deps: ReconcileDeps,
  slice: Slice,
  { stopping, throttle, unlogged = false, isLong }: SliceOptions,
): Promise<Reconciled | "too many" | undefined> {
  let [changes, admitted, read] = [0, 0, 0];
  let batch = new Map<string, TimelineEvent>();
  const admitSome = async (): Promise<void> => {
    changes += batch.size;
    if (batch.size > 0) admitted += await admitMissing(deps, slice, { batch, unlogged, stopping });
    batch = new Map();
  };
  for await (const event of deps.readChanges(slice)) {
    if (stopping?.aborted) return undefined;
    if (++read % CHANGES_A_PAUSE === 0) await throttle?.(stopping, CHANGES_A_PAUSE);
    batch.set(messageId(event), event);
    if (isLong && batch.size > MOST_IN_LONG_SLICE) return "too many";
    if (batch.size >= MOST_IN_MEMORY && !isLong) await admitSome();
  }
  await admitSome();
  return stopping?.aborted ? undefined : { changes, admitted };
}

interface Changes {
  readonly batch: Map<string, TimelineEvent>;
  readonly unlogged: boolean;
  readonly stopping: AbortSignal | undefined;
}

/** Resolves to the number of changes that the log lacked; to 0 if `stopping` aborts before they are admitted. */
async function admitMissing(
  { readLogged, admit }: ReconcileDeps,
  slice: Slice,
  { batch: missing, unlogged, stopping }: Changes,
): Promise<number> {
  const admittedIn = { since: slice.since - CLOCK_SKEW_MS, until: slice.until + ADMISSION_LAG_MS };
  for await (const { event } of unlogged ? [] : readLogged(admittedIn)) {
    // The id comes from the event: a redriven one was stored under another.
    const id = messageId(event);
    missing.delete(id);
    // A remote drop that an upstream lists too is not one of this server's own.
    if (id.startsWith("ap_drop_received:")) missing.delete(id.replace("ap_drop_received:", "drop_created:"));
    if (missing.size === 0 || stopping?.aborted) break;
  }
  if (stopping?.aborted) return 0;
  const now = sharedNow();
  await mapLimited([...missing.values()], ADMITTED_AT_ONCE, (event) =>
    admit(event, slice.silent || isHistory(event, now)),
  );
  return missing.size;
}

const isHistory = ({ name, payload }: TimelineEvent, now: number): boolean =>
  name === "drop_created" && payload.created_at < now - NOTIFY_WINDOW_MS;

export type Cause = "start" | "reconnect" | "gap" | "overflow";

/** Stores the requested times of all processes until they are reconciled: a process may end before its own are. */
interface RequestsDeps {
  /** Default: requests are only counted. */
  readonly reconcile: Reconcile | undefined;
  readonly unreconciled: Unreconciled;
  readonly log: Logger;
}

const SETTLE_MS = SECOND / 2;
const RETRY_CAP_MS = 30 * SECOND;

/** Reconciles the requested time, one range at a time, and retries until the upstreams have answered. */
export function createReconcileRequests(deps: RequestsDeps) {
  const { reconcile, unreconciled, log } = deps;
  let [since, noted] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  const unnoted = (error: unknown) => {
    log.debug({ error: oneLine(error) }, "times that are to be reconciled were not noted, read or forgotten");
    return { since: Number.POSITIVE_INFINITY, names: [] };
  };
  const work = async (stopping: AbortSignal): Promise<void> => {
    if (!reconcile || since === Number.POSITIVE_INFINITY) return;
    await pause(SETTLE_MS, stopping);
    if (stopping.aborted) return;
    const requested = since;
    since = noted = Number.POSITIVE_INFINITY;
    try {
      const stored = await unreconciled.read().catch(unnoted);
      // The clock of NATS or of another bridge may be ahead.
      const from = Math.min(requested, stored.since, sharedNow());
      const result = await reconcile(untilNow(from));
      await unreconciled.forget(stored.names).catch(unnoted);
      observeReconcile.reconciled(result);
      if (result.admitted > 0) log.warn({ ...result, from }, "events lost on Redis Pub/Sub are admitted now");
      else log.info({ ...result, from }, "no events were lost on Redis Pub/Sub");
    } catch (error) {
      since = Math.min(since, requested);
      noted = Math.min(noted, requested);
      throw error;
    }
  };
  const loop = startLoop({
    work,
    everyMs: DAY,
    backoffCapMs: RETRY_CAP_MS,
    failed: (error, failures) => {
      if (failures === 1) log.warn({ error: oneLine(error) }, "reconciliation failed; it is retried");
    },
    closeMs: SECOND,
  });
  const request = (from: number, cause: Cause): void => {
    observeReconcile.requested(cause);
    since = Math.min(since, from);
    if (reconcile && from < noted) {
      noted = from;
      void unreconciled.note(from).catch(unnoted);
    }
    loop.wake();
  };
  return {
    /** Requests a reconciliation: events may have been lost from `since` (ms since the epoch) until now. */
    request,
    close: () => loop.close(),
  };
}
