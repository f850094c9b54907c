import { LRUCache } from "lru-cache";
import { type Clock, SECOND } from "../../kernel/time.js";

/** How long an outcome speaks for the state of an upstream. */
const WINDOW_MS = 30 * SECOND;
/** So many of those asked for last are counted: an upstream that breaks is not outvoted by who was answered before. */
const RECENT = 20;

/** Tells an upstream that is broken from one that fails for somebody. */
export interface Majority {
  /** Notes how a call about somebody ended. */
  note(subject: string, ok: boolean): void;
  /** True while calls about most of those asked for fail, and not only about one. */
  failing(): boolean;
}

/**
 * Watches the latest outcome of a call about each of the subjects (users,
 * authors) asked for last. Counting subjects and not calls keeps one that is
 * retried again and again from looking like many.
 */
export function createMajority(now: Clock = Date.now): Majority {
  const latest = new LRUCache<string, { readonly ok: boolean; readonly at: number }>({ max: RECENT });
  return {
    note: (subject, ok) => void latest.set(subject, { ok, at: now() }),
    failing() {
      const since = now() - WINDOW_MS;
      let failed = 0;
      let succeeded = 0;
      for (const { ok, at } of latest.values()) {
        if (at < since) continue;
        if (ok) succeeded++;
        else failed++;
      }
      return failed > 1 && failed > succeeded;
    },
  };
}
