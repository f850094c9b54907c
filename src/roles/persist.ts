import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";
import { Refusal } from "../platform/refusals.js";

/**
 * Tries until it works; says once that it does not. What is not `worthwhile` to try again is thrown, and always that a
 * server turns us away: somebody has to mend that.
 */
export async function persist(
  work: () => Promise<void>,
  log: Logger,
  complaint: string,
  worthwhile: (error: unknown) => boolean = () => true,
): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refusal || !worthwhile(error)) throw error;
      if (tries === 0) log.warn({ error: oneLine(error) }, complaint);
      await pause(SECOND / 4);
    }
  }
}
