import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { startLoop } from "../../kernel/loop.js";
import { DAY, MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { Reconcile, Reconciled } from "./reconcile.js";

export type Cause = "start" | "reconnect" | "gap" | "overflow";

interface RequestsDeps {
  /** Unset: requests are only counted. */
  readonly reconcile: Reconcile | undefined;
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
const SETTLE_MS = SECOND / 2;
const RETRY_CAP_MS = 30 * SECOND;

/** Reconciles the requested time, one range at a time, and retries until the upstreams have answered. */
export function createReconcileRequests(deps: RequestsDeps): ReconcileRequests {
  const { reconcile, readLastAdmission, log, observe } = deps;
  let since = Number.POSITIVE_INFINITY;
  const work = async (stopping: AbortSignal): Promise<void> => {
    if (!reconcile || since === Number.POSITIVE_INFINITY) return;
    await pause(SETTLE_MS, stopping);
    if (stopping.aborted) return;
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
    observe.requested(cause);
    since = Math.min(since, from);
    loop.wake();
  };
  return {
    request,
    async requestSinceLastEvent() {
      const last = await readLastAdmission();
      if (last !== undefined) request(last, "start");
    },
    close: () => loop.close(),
  };
}
