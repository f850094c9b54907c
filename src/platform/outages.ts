import { LRUCache } from "lru-cache";
import { type Clock, SECOND } from "../kernel/time.js";

/** Outcomes older than this do not count. */
const WINDOW_MS = 30 * SECOND;
/** Few, so that earlier answers do not outvote an upstream that breaks now. */
const RECENT = 20;

/**
 * Tells an upstream that is broken from one that fails for one user. Counts subjects (users, authors), not calls: retries
 * for one subject do not look like many failures.
 */
export function createMajority(now: Clock = Date.now) {
  const latest = new LRUCache<string, { readonly ok: boolean; readonly at: number }>({ max: RECENT });
  return {
    note: (subject: string, ok: boolean): void => void latest.set(subject, { ok, at: now() }),
    failing(): boolean {
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

interface Good {
  readonly subject: string;
  readonly again: (deadline: number) => Promise<unknown>;
}

const PROBE_EVERY_MS = SECOND / 4;
const PROBE_TIMEOUT_MS = SECOND;

/** Calls a failing upstream for another subject, to find out whether the upstream or the subject is at fault. */
export function createProbe(majority: Pick<ReturnType<typeof createMajority>, "note">, now: Clock = Date.now) {
  // Two, so that one of them is another subject.
  let good: readonly Good[] = [];
  let asked = Number.NEGATIVE_INFINITY;
  let asking: Promise<boolean | undefined> = Promise.resolve(undefined);
  return {
    remember(subject: string, again: Good["again"]): void {
      const [latest] = good;
      good =
        latest && latest.subject !== subject ? [{ subject, again }, latest] : [{ subject, again }, ...good.slice(1)];
    },
    /** Repeats a call about another subject; undefined where there is none. Within 250 ms the last result counts. */
    ask(failed: string): Promise<boolean | undefined> {
      const other = good.find(({ subject }) => subject !== failed);
      // After the clock was set back, an old answer must not count for longer.
      if (other && Math.abs(now() - asked) >= PROBE_EVERY_MS) {
        asked = now();
        asking = again(other);
      }
      return asking;
    },
  };

  async function again(other: Good): Promise<boolean> {
    const answered = await other.again(now() + PROBE_TIMEOUT_MS).then(
      () => true,
      () => false,
    );
    majority.note(other.subject, answered);
    return answered;
  }
}
