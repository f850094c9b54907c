import pLimit from "p-limit";
import { pause } from "./time.js";

export type LaneName = "prompt" | "yielding";

/** Calls of a lane begin in the order in which they came. */
export interface Lane {
  run<T>(call: () => Promise<T>): Promise<T>;
  /** Number of calls that have not begun. */
  readonly waiting: number;
}

export interface Lanes extends Readonly<Record<LaneName, Lane>> {
  /** Pauses as `yielding` does after work that took `ms`: not at all while `prompt` is idle. */
  yieldAfter(ms: number): Promise<void>;
}

/** The clock is any that counts ms. */
interface Timers {
  now(): number;
  pause(ms: number): Promise<unknown>;
}

const REAL: Timers = { now: () => performance.now(), pause };

/** Another prompt call is expected for so long after one. */
const RECENTLY_MS = 100;
/** The lane is busy for a third of the time. */
const PAUSE_BY_DURATION = 2;
const MAX_PAUSE_MS = 50;

/**
 * Two lanes to one server. `most` bounds the calls under way in each. While `prompt` has calls, `yielding` makes one
 * call at a time, and pauses after it for twice as long as it took. Latency cannot show the need: a small drop makes ten
 * fast calls, and shares its cores with the work behind this lane.
 */
export function createLanes(most: Readonly<Record<LaneName, number>>, timers = REAL): Lanes {
  const prompt = pLimit(most.prompt);
  const yielding = pLimit(most.yielding);
  let recentUntil = Number.NEGATIVE_INFINITY;
  const isPromptBusy = (): boolean => prompt.activeCount + prompt.pendingCount > 0 || timers.now() < recentUntil;
  const adjust = (): void => {
    yielding.concurrency = isPromptBusy() ? 1 : most.yielding;
  };
  const yieldAfter = async (ms: number): Promise<void> => {
    if (isPromptBusy()) await timers.pause(Math.min(PAUSE_BY_DURATION * ms, MAX_PAUSE_MS));
  };

  async function runPrompt<T>(call: () => Promise<T>): Promise<T> {
    const result = prompt(call);
    adjust();
    try {
      return await result;
    } finally {
      recentUntil = timers.now() + RECENTLY_MS;
    }
  }

  /** The result waits for the pause: only the last call of a fan-out shows it. */
  const runYielding = <T>(call: () => Promise<T>): Promise<T> =>
    yielding(async () => {
      adjust();
      const begun = timers.now();
      try {
        return await call();
      } finally {
        await yieldAfter(timers.now() - begun);
        adjust();
      }
    });

  return {
    prompt: {
      run: runPrompt,
      get waiting() {
        return prompt.pendingCount;
      },
    },
    yielding: {
      run: runYielding,
      get waiting() {
        return yielding.pendingCount;
      },
    },
    yieldAfter,
  };
}
