import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { HOUR, pause, SECOND } from "../kernel/time.js";
import type { OutboxStore } from "./ports.js";

/** Published events are kept so long, to be looked at. */
const KEPT_MS = HOUR;
const PRUNED_AT_ONCE = 5_000;
const EVERY_MS = 15 * SECOND;

/** What the upkeep works with. */
export interface UpkeepDeps {
  readonly store: Pick<OutboxStore, "prune">;
  readonly log: Logger;
}

/** Removes what was published long ago; any number of processes may do so. */
export function startOutboxUpkeep({ store, log }: UpkeepDeps): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        const pruned = await store.prune(KEPT_MS, PRUNED_AT_ONCE);
        if (pruned === PRUNED_AT_ONCE) continue;
      } catch (error) {
        log.debug({ error: oneLine(error) }, "the outbox could not be looked after");
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
