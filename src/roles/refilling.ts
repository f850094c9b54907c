import type { ReadBacklog } from "../consistency/redis-loss/ports.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, MINUTE, pause, SECOND } from "../kernel/time.js";
import type { Reconciling } from "./reconciling.js";

interface RefillDeps {
  readonly reconcile: Reconciling;
  readonly readBacklog: ReadBacklog;
  readonly log: Logger;
}

/** A stretch of wall-clock time of the upstreams, in ms since the epoch. */
interface Range {
  readonly since: number;
  readonly until: number;
}

const SLICE_MS = 10 * MINUTE;
/** What is published meanwhile does not wait behind more than this. */
const MOST_BEHIND_MS = 5 * SECOND;
const RETRY_CAP_MS = 30 * SECOND;

/**
 * Gives a log that was made anew what it would hold from before, newest first and silently: local and global, the
 * fences and replays are built from it. New events go before: a slice waits until those in front of it are applied.
 */
export async function refillLog(deps: RefillDeps, { since, until }: Range, stopping: AbortSignal): Promise<void> {
  let admitted = 0;
  let failures = 0;
  for (let end = until; end > since && !stopping.aborted; ) {
    try {
      const begin = Math.max(end - SLICE_MS, since);
      admitted += (await deps.reconcile({ since: begin, until: end }, undefined, stopping)).admitted;
      while (!stopping.aborted && (await deps.readBacklog()).start < Date.now() - MOST_BEHIND_MS)
        await pause(SECOND, stopping);
      end = begin;
      failures = 0;
    } catch (error) {
      if (failures++ === 0) deps.log.warn({ error: oneLine(error) }, "the log cannot be refilled yet");
      await pause(backoff(failures, SECOND, RETRY_CAP_MS), stopping);
    }
  }
  if (!stopping.aborted)
    deps.log.warn({ admitted, since }, "the log reaches back again as far as the upstreams can tell");
}
