import { oneLine } from "../../kernel/errors.js";
import type { Logger } from "../../kernel/logger.js";
import { backoff, type Clock, MINUTE, pause, SECOND } from "../../kernel/time.js";

/** Down to when the posts service keeps drops. */
export interface Retention {
  /** In ms since the epoch; 0: from the start, or not known yet. */
  retentionStart(): number;
  /** Asks the posts service; false where it has no such thing to tell. */
  refresh(): Promise<boolean>;
}

/** Says down to when drops are kept, in ms since the epoch; undefined where the service cannot tell. */
export type ReadRetentionStart = () => Promise<number | undefined>;

const EVERY_MS = 10 * SECOND;
/** A service that cannot tell may be replaced by one that can. */
const UNTOLD_EVERY_MS = 10 * MINUTE;

/** Makes it; what was told once stays true, so that it is remembered while the posts service is away. */
export function createRetention(read: ReadRetentionStart, now: Clock = Date.now): Retention {
  let retentionStart = 0;
  return {
    retentionStart: () => retentionStart,
    refresh: async () => {
      const told = await read();
      // A time ahead of now would hide everything.
      if (told !== undefined && Number.isSafeInteger(told) && told <= now())
        retentionStart = Math.max(retentionStart, told);
      return told !== undefined;
    },
  };
}

/** Asks again and again, from now on until it is closed. */
export function followRetention({ refresh }: Retention, log: Logger): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted; ) {
      let waitMs = EVERY_MS;
      try {
        if (!(await refresh())) waitMs = UNTOLD_EVERY_MS;
        failures = 0;
      } catch (error) {
        failures += 1;
        waitMs = backoff(failures, SECOND, EVERY_MS);
        log.debug({ error: oneLine(error) }, "the posts service cannot say down to when drops are kept");
      }
      await pause(waitMs, stopping.signal);
    }
  };
  const running = run();
  return {
    close: async () => {
      stopping.abort();
      await Promise.race([running, pause(SECOND)]);
    },
  };
}
