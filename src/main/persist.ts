import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";

/** Tries until it works; says once that it does not. What is not `worthwhile` to try again is thrown. */
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
      if (!worthwhile(error)) throw error;
      if (tries === 0) log.warn({ error: oneLine(error) }, complaint);
      await pause(SECOND / 4);
    }
  }
}
