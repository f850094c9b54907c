import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { HOUR, pause, SECOND } from "../kernel/time.js";
import type { OutboxStore } from "./store.sql.js";

const KEPT_MS = HOUR;
const PRUNED_AT_ONCE = 5_000;
const EVERY_MS = 15 * SECOND;

/** Removes events published an hour ago; any number of processes may do so. */
export function startOutboxMaintenance(store: Pick<OutboxStore, "prune">, log: Logger): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        const pruned = await store.prune(KEPT_MS, PRUNED_AT_ONCE);
        if (pruned === PRUNED_AT_ONCE) continue;
      } catch (error) {
        log.debug({ error: oneLine(error) }, "published events could not be removed from the outbox");
      }
      await pause(EVERY_MS * (0.5 + Math.random()), stopping.signal);
    }
  };
  const running = run();
  return {
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}
