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

/** A call that was answered, and may be made again. */
interface Good {
  readonly subject: string;
  readonly again: (deadline: number) => Promise<unknown>;
}

/** Asks an upstream that fails for somebody about somebody else, to learn whose fault it is. */
export interface Probe {
  /** Remembers a call that was answered. */
  remember(subject: string, again: Good["again"]): void;
  /**
   * Makes a remembered call about somebody else again, not too often; never rejects.
   *
   * @returns whether that was answered; undefined where there is nobody else to ask about
   */
  ask(failed: string): Promise<boolean | undefined>;
}

const PROBE_EVERY_MS = SECOND / 4;
const PROBE_TIMEOUT_MS = SECOND;

/** Makes the probe of one upstream. */
export function createProbe(majority: Pick<Majority, "note">, now: Clock = Date.now): Probe {
  // Two, so that one of them is somebody else.
  let good: readonly Good[] = [];
  let asked = Number.NEGATIVE_INFINITY;
  let asking: Promise<boolean | undefined> = Promise.resolve(undefined);
  return {
    remember(subject, again) {
      const [latest] = good;
      good =
        latest && latest.subject !== subject ? [{ subject, again }, latest] : [{ subject, again }, ...good.slice(1)];
    },
    ask(failed) {
      const other = good.find(({ subject }) => subject !== failed);
      if (other && now() - asked >= PROBE_EVERY_MS) {
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
