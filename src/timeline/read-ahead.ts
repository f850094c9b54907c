import { createThrottle } from "../kernel/concurrency.js";
import { oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop } from "../kernel/loop.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import type { FirstPage, MostRead } from "./most-read.redis.js";

/** Rejects where the page is not stored: it is left to its reader. */
export type ReadFirstPage = (page: FirstPage) => Promise<unknown>;

interface ReadAheadDeps {
  readonly mostRead: Pick<MostRead, "list" | "store">;
  readonly cache: { isOn(): boolean };
  readonly read: ReadFirstPage;
  /** Pages a second. */
  readonly rate: number;
  readonly log: Logger;
}

const TRY_MS = SECOND / 4;

/** Reads the pages that were read most lately once keys can be followed, and then stores which are read most. */
export function startReadAhead({ mostRead, cache, read, rate, log }: ReadAheadDeps): { close(): Promise<void> } {
  const throttle = createThrottle(rate);
  let isDone = false;
  const readAll = async (stopping: AbortSignal): Promise<void> => {
    const pages = await mostRead.list();
    for (const page of pages) {
      await throttle(stopping);
      if (stopping.aborted) return;
      // A page is cached from its second read on.
      await read(page).then(
        () => read(page),
        () => undefined,
      );
    }
    if (pages.length > 0) log.info({ pages: pages.length }, "the most-read pages are cached");
  };
  const loop = startLoop({
    work: async (stopping) => {
      if (isDone) return mostRead.store();
      if (!cache.isOn()) return TRY_MS;
      await readAll(stopping);
      isDone = true;
      return undefined;
    },
    everyMs: MINUTE,
    jitter: true,
    failed: (error) => log.warn({ error: oneLine(error) }, "the list of most-read pages could not be read or stored"),
    closeMs: SECOND,
  });
  return {
    close: async () => {
      await loop.close();
      await mostRead.store().catch(() => undefined);
    },
  };
}
