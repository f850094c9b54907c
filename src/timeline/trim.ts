import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { pause, SECOND } from "../kernel/time.js";

/** Timelines, where drops go for their age. Times are in ms since the epoch. */
export interface TrimStore {
  /** Before when drops were removed from all of them last; 0 where that was longer than a day ago. */
  trimmedTo(): Promise<number>;
  noteTrimmed(before: number): Promise<void>;
  /** Removes older drops from every timeline, some timelines a step; tells how many went. */
  trimAll(before: number): AsyncIterable<number>;
}

interface TrimDeps {
  readonly store: TrimStore;
  readonly retentionStart: () => number;
  /** One process trims at a time. */
  readonly lease: { hold(): Promise<boolean>; release(): Promise<void> };
  readonly log: Logger;
  /** Between two looks, in ms; five seconds unless told otherwise. */
  readonly everyMs?: number;
}

const EVERY_MS = 5 * SECOND;

/**
 * Removes from all timelines what has gone for its age. A process that has not heard of it yet may write such a drop
 * afterwards; pages hide it, and a day later it is removed.
 */
export function startTrimming(deps: TrimDeps): { close(): Promise<void> } {
  const { lease, log, everyMs = EVERY_MS } = deps;
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await trimOnce(deps, stopping.signal);
      } catch (error) {
        log.warn({ error: oneLine(error) }, "old drops could not be removed from timelines; it is tried again");
      }
      await pause(everyMs, stopping.signal);
    }
  };
  const running = run();
  return {
    close: async () => {
      stopping.abort();
      await Promise.race([running, pause(SECOND)]);
      await lease.release().catch(() => undefined);
    },
  };
}

async function trimOnce({ store, retentionStart, lease, log }: TrimDeps, stopping: AbortSignal): Promise<void> {
  const before = retentionStart();
  if (before === 0 || (await store.trimmedTo()) >= before || !(await lease.hold())) return;
  let removed = 0;
  for await (const gone of store.trimAll(before)) {
    removed += gone;
    if (stopping.aborted || !(await lease.hold())) return;
  }
  await store.noteTrimmed(before);
  await lease.release();
  if (removed > 0) log.info({ removed, before }, "drops have gone for their age, and were removed from all timelines");
}
