import { randomUUID } from "node:crypto";
import { REPETITION_MS } from "../../contracts/times.js";
import { createThrottle } from "../../kernel/concurrency.js";
import { failpoint } from "../../kernel/failpoints.js";
import { underLease } from "../../kernel/lease.js";
import type { Logger } from "../../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../../kernel/loop.js";
import { SECOND, sharedNow } from "../../kernel/time.js";
import {
  FILL_WINDOW_MS,
  type FillStore,
  fillAsJson,
  isFilled,
  type LogFill,
  windowRange,
  windowsOf,
} from "../../state/index.js";
import { type ReadUnapplied, untilApplied } from "../audit/audit.js";
import { ADMISSION_LAG_MS, type Reconcile, type TimeRange } from "../reconcile/reconcile.js";

interface FillDeps {
  readonly store: FillStore;
  /** Resolves to the creation time of the log. */
  readonly readLog: () => Promise<string>;
  readonly reconcile: Reconcile;
  readonly readUnapplied: ReadUnapplied;
  /** Returns true while data may be lost: a recovery comes first. */
  readonly isLost: () => boolean;
  /** Default: CHANGES_A_SECOND. */
  readonly rate?: number;
  readonly log: Logger;
}

/** Maximum number of changes that a process reads from the upstreams a second. */
const CHANGES_A_SECOND = 2_000;
const EVERY_MS = SECOND;
const RETRY_CAP_MS = 30 * SECOND;
const REPORT_MS = 10 * SECOND;
const MOST_BEHIND_MS = 5 * SECOND;

const TEXTS = {
  first: ["the first fill of the log goes on", "the first fill of the log is done"],
  lost: ["the log is being filled again", "the log is filled again with everything the upstreams can still list"],
} as const;

/** Stores a fill, so that the processes of the role fanout fill the log. */
export async function beginFill(
  { store, log }: Pick<FillDeps, "store" | "log">,
  { why, created, range }: { readonly why: LogFill["why"]; readonly created: string; readonly range: TimeRange },
): Promise<void> {
  const started = sharedNow();
  await store.begin({ id: randomUUID(), why, log: created, ...range, started, done: new Map() });
  log.info(
    { since: new Date(range.since).toISOString() },
    why === "first"
      ? "the log is new beside upstreams with drops: its first fill begins, newest first; pages do not wait for it"
      : "the log is filled again with what the upstreams list of the time before, newest first",
  );
}

/**
 * Fills the log: windows of time, newest first, of which each process takes those that no other one works on. Events
 * are admitted silently and applied once, by the consumers of the log; new events wait behind few of them.
 */
export function startFill(deps: FillDeps): Loop & { readonly current: () => LogFill | undefined } {
  const { store, log } = deps;
  const throttle = createThrottle(deps.rate ?? CHANGES_A_SECOND);
  let current: LogFill | undefined;
  const read = async (): Promise<LogFill | undefined> => {
    const stored = await store.read();
    const known = stored ?? current;
    if (!known) return undefined;
    const isOfLog = known.log === (await deps.readLog());
    // Redis was emptied meanwhile.
    if (!stored && isOfLog && !isFilled(known)) await store.begin(known);
    current = isOfLog ? known : undefined;
    return current;
  };
  const fillWindow = async (fill: LogFill, window: number, stopping: AbortSignal): Promise<void> => {
    if ((await read())?.done.has(window)) return;
    const range = windowRange(fill, window);
    const isLast = window === windowsOf(fill) - 1;
    // The log holds the events admitted since it was created; NATS detects repetitions of those that came during a
    // short fill.
    const unlogged = isLast
      ? sharedNow() - fill.started < REPETITION_MS / 2
      : range.until + ADMISSION_LAG_MS < Date.parse(fill.log);
    const options = { stopping, throttle, unlogged, silent: true, sliceMs: FILL_WINDOW_MS };
    const { changes, admitted } = await deps.reconcile(range, options);
    await failpoint("fill-window", String(window));
    if (admitted > 0) await untilApplied(deps.readUnapplied, sharedNow() - MOST_BEHIND_MS, stopping);
    if (stopping.aborted) return;
    current = { ...fill, done: new Map([...fill.done, [window, changes]]) };
    await store.finish(fill, window, changes);
  };
  const run = async (begun: LogFill, stopping: AbortSignal): Promise<void> => {
    const windows = windowsOf(begun);
    for (let window = 0; window < windows && !stopping.aborted && !deps.isLost(); window++) {
      const fill = await read();
      if (fill?.id !== begun.id) return;
      const isDue = window < windows - 1 || fill.done.size === windows - 1;
      if (fill.done.has(window) || !isDue) continue;
      await underLease(store.lease(window), () => fillWindow(fill, window, stopping));
    }
    const fill = await read();
    if (fill && isFilled(fill)) log.info(fields(fill), TEXTS[fill.why][1]);
  };
  const loop = startLoop({
    everyMs: EVERY_MS,
    backoffCapMs: RETRY_CAP_MS,
    work: async (stopping) => {
      const fill = await read();
      if (!fill || isFilled(fill) || deps.isLost()) return;
      const report = (): void => current && log.info(fields(current), TEXTS[current.why][0]);
      const reporting = setInterval(report, REPORT_MS);
      try {
        await run(fill, stopping);
      } finally {
        clearInterval(reporting);
      }
    },
    failed: warnOnce(log, "filling the log failed; it is retried"),
    closeMs: SECOND,
  });
  return { ...loop, current: () => current };
}

function fields(fill: LogFill) {
  const { why: _, back_to, ...rest } = fillAsJson(fill);
  return { ...rest, back_to: new Date(back_to).toISOString() };
}
