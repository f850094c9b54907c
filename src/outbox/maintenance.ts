import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { HOUR, SECOND } from "../kernel/time.js";
import type { OutboxStore } from "./store.sql.js";

const KEPT_MS = HOUR;
const PRUNED_AT_ONCE = 5_000;

/** Removes published events after an hour; any number of processes may do so. */
export function startOutboxMaintenance(store: Pick<OutboxStore, "prune">, log: Logger): Loop {
  return startLoop({
    work: async () => ((await store.prune(KEPT_MS, PRUNED_AT_ONCE)) === PRUNED_AT_ONCE ? 0 : undefined),
    everyMs: 15 * SECOND,
    jitter: true,
    failed: (error) => log.debug({ error: oneLine(error) }, "published events could not be removed from the outbox"),
  });
}
