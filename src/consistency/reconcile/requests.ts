import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { backoff, MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { Reconcile, Reconciled } from "./reconcile.js";

/** Why events may have been lost on Redis Pub/Sub. */
export type Cause = "start" | "reconnect" | "gap" | "overflow";

interface RequestsDeps {
  /** Unset: requests are only counted. */
  readonly reconcile: Reconcile | undefined;
  /** In ms since the epoch; undefined for an empty log. */
  readonly readLastAdmission: () => Promise<number | undefined>;
  readonly log: Logger;
  readonly observe: { requested(cause: Cause): void; reconciled(found: Reconciled): void };
}

export interface ReconcileRequests {
  /** Events may have been lost from `since` (ms since the epoch) until now. */
  request(since: number, cause: Cause): void;
  /** Events were lost while no bridge ran, which is since the last admission. An empty log has missed none. */
  requestSinceLastEvent(): Promise<void>;
  close(): Promise<void>;
}

/** An event is published after its change, and clocks differ. */
const OVERLAP_MS = MINUTE;
/** Requests that come together are reconciled together. */
const SETTLE_MS = SECOND / 2;
const RETRY_BASE_MS = SECOND;
const RETRY_CAP_MS = 30 * SECOND;

/** Reconciles the requested time, one range at a time, and retries until the upstreams have answered. */
export function createReconcileRequests(deps: RequestsDeps): ReconcileRequests {
  const { reconcile, readLastAdmission, log, observe } = deps;
  const closing = new AbortController();
  let since = Number.POSITIVE_INFINITY;
  let running: Promise<void> | undefined;
  const once = async (reconcile: Reconcile): Promise<void> => {
    const from = since;
    since = Number.POSITIVE_INFINITY;
    try {
      const found = await reconcile({ since: from - OVERLAP_MS, until: Date.now() });
      observe.reconciled(found);
      if (found.admitted > 0) log.warn({ ...found, from }, "events lost on Redis Pub/Sub are admitted now");
      else log.info({ ...found, from }, "no events were lost on Redis Pub/Sub");
    } catch (error) {
      since = Math.min(since, from);
      throw error;
    }
  };
  const run = async (reconcile: Reconcile): Promise<void> => {
    await pause(SETTLE_MS, closing.signal);
    for (let failures = 0; since < Number.POSITIVE_INFINITY && !closing.signal.aborted; ) {
      try {
        await once(reconcile);
        failures = 0;
      } catch (error) {
        if (failures++ === 0) log.warn({ error: oneLine(error) }, "reconciliation failed; it is retried");
        await pause(backoff(failures, RETRY_BASE_MS, RETRY_CAP_MS), closing.signal);
      }
    }
    running = undefined;
  };
  const request = (from: number, cause: Cause): void => {
    observe.requested(cause);
    since = Math.min(since, from);
    if (reconcile) running ??= run(reconcile);
  };
  return {
    request,
    async requestSinceLastEvent() {
      const last = await readLastAdmission();
      if (last !== undefined) request(last, "start");
    },
    async close() {
      closing.abort();
      await Promise.race([running, pause(SECOND)]);
    },
  };
}
