import { oneLine } from "../kernel/errors.js";
import { type Lease, underLease } from "../kernel/lease.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop } from "../kernel/loop.js";
import { SECOND } from "../kernel/time.js";
import type { TrimStore } from "./homes.redis.js";

interface TrimDeps {
  readonly store: TrimStore;
  readonly retentionStart: () => number;
  readonly lease: Lease;
  readonly log: Logger;
  readonly everyMs?: number;
}

/** A process that does not know the new limit yet may write an older drop: reads hide it until the next day's trim. */
export function startTrimming(deps: TrimDeps): Loop {
  return startLoop({
    work: (stopping) => trimOnce(deps, stopping),
    everyMs: deps.everyMs ?? 5 * SECOND,
    failed: (error) => deps.log.warn({ error: oneLine(error) }, "timelines could not be trimmed; it is tried again"),
    closeMs: SECOND,
  });
}

async function trimOnce({ store, retentionStart, lease, log }: TrimDeps, stopping: AbortSignal): Promise<void> {
  const before = retentionStart();
  if (before === 0 || (await store.trimmedTo()) >= before) return;
  await underLease(lease, async () => {
    let removed = 0;
    for await (const gone of store.trimAll(before)) {
      removed += gone;
      if (stopping.aborted) return;
    }
    await store.recordTrimmed(before);
    if (removed > 0) log.info({ removed, before }, "drops older than the retention were removed from all timelines");
  });
}
