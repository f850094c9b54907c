import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { backoff, MINUTE, pause, SECOND } from "../../kernel/time.js";
import type { Window } from "./ports.js";
import type { Reconciled } from "./reconcile.js";

/** Why events may have been lost. */
export type Cause = "start" | "reconnect" | "gap" | "overflow";

interface SuspectsDeps {
  readonly reconcile: (window: Window) => Promise<Reconciled>;
  readonly log: Logger;
  readonly observe: { suspected(cause: Cause): void; reconciled(found: Reconciled): void };
}

/** The stretches of time in which events may have been lost, until they are reconciled. */
export interface Suspects {
  /** From `since` (ms since the epoch) until now something may be missing. */
  add(since: number, cause: Cause): void;
  close(): Promise<void>;
}

/** An event is published after its change, and clocks differ. */
const OVERLAP_MS = MINUTE;
/** What is suspected in one go is read in one go. */
const SETTLE_MS = SECOND / 2;
const RETRY_BASE_MS = SECOND;
const RETRY_CAP_MS = 30 * SECOND;

/** Reconciles whatever is suspected, one window at a time, and tries again until the upstreams have answered. */
export function createSuspects({ reconcile, log, observe }: SuspectsDeps): Suspects {
  const closing = new AbortController();
  let since = Number.POSITIVE_INFINITY;
  let running: Promise<void> | undefined;
  const once = async (): Promise<void> => {
    const from = since;
    since = Number.POSITIVE_INFINITY;
    try {
      const found = await reconcile({ since: from - OVERLAP_MS, until: Date.now() });
      observe.reconciled(found);
      if (found.admitted > 0)
        log.warn({ ...found, from }, "events had been lost on Redis Pub/Sub; they are admitted now");
      else log.info({ ...found, from }, "nothing had been lost");
    } catch (error) {
      since = Math.min(since, from);
      throw error;
    }
  };
  const run = async (): Promise<void> => {
    await pause(SETTLE_MS, closing.signal);
    for (let failures = 0; since < Number.POSITIVE_INFINITY && !closing.signal.aborted; ) {
      try {
        await once();
        failures = 0;
      } catch (error) {
        if (failures++ === 0) log.warn({ error: oneLine(error) }, "what may be lost cannot be looked up yet");
        await pause(backoff(failures, RETRY_BASE_MS, RETRY_CAP_MS), closing.signal);
      }
    }
    running = undefined;
  };
  return {
    add(from, cause) {
      observe.suspected(cause);
      since = Math.min(since, from);
      running ??= run();
    },
    async close() {
      closing.abort();
      await Promise.race([running, pause(SECOND)]);
    },
  };
}
