import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { type Clock, MINUTE, SECOND } from "../kernel/time.js";

/** The time down to which the posts service keeps drops. */
type Retention = ReturnType<typeof createRetention>;

export type ReadRetentionStart = () => Promise<number | undefined>;

const EVERY_MS = 10 * SECOND;
const UNKNOWN_EVERY_MS = 10 * MINUTE;

/** The time never falls, so the last answer is right while the posts service is unavailable. */
export function createRetention(read: ReadRetentionStart, now: Clock = Date.now) {
  let retentionStart = 0;
  return {
    /** In ms since the epoch; 0: everything is kept, or nothing is known yet. */
    retentionStart: (): number => retentionStart,
    /** Asks the posts service; false if it does not know the question. */
    refresh: async (): Promise<boolean> => {
      const answer = await read();
      // A time in the future would hide everything.
      if (answer !== undefined && Number.isSafeInteger(answer) && answer <= now())
        retentionStart = Math.max(retentionStart, answer);
      return answer !== undefined;
    },
  };
}

export function followRetention({ refresh }: Retention, log: Logger): Loop {
  return startLoop({
    work: async () => ((await refresh()) ? undefined : UNKNOWN_EVERY_MS),
    everyMs: EVERY_MS,
    backoffCapMs: EVERY_MS,
    failed: (error) => log.debug({ error: oneLine(error) }, "the posts service did not answer how long drops are kept"),
    closeMs: SECOND,
  });
}
