import type { Delivery } from "../../delivery/handler.js";
import { pause, SECOND } from "../../kernel/time.js";
import type { ReadStretch, Stretch } from "./ports.js";

interface ReplayDeps {
  readonly readStretch: ReadStretch;
  /** Applies one event once more, telling nobody. */
  readonly apply: (event: Delivery) => Promise<void>;
}

/** How a replay is done. */
export interface ReplayOptions {
  /** Events a second at most; unset: as fast as it goes. */
  readonly rate?: number | undefined;
  /** Told after each event, with how many are done. */
  readonly progress?: (done: number, event: Delivery) => void;
  readonly stopping?: AbortSignal | undefined;
}

const AT_ONCE = 32;

/**
 * Applies a stretch of the log again. The order does not matter, and what
 * stands already stays as it is: any duplication and reordering of events ends
 * in the same state.
 *
 * @returns how many events were applied
 */
export async function replay(deps: ReplayDeps, stretch: Stretch, options: ReplayOptions = {}): Promise<number> {
  const { rate, progress, stopping } = options;
  const underWay = new Set<Promise<void>>();
  const started = performance.now();
  let begun = 0;
  let done = 0;
  let failure: { readonly error: unknown } | undefined;
  await deps.readStretch(stretch, async (event, applied) => {
    if (failure || stopping?.aborted) return false;
    if (rate !== undefined) await pause(started + (begun * SECOND) / rate - performance.now(), stopping);
    begun++;
    const applying = deps
      .apply(event)
      .then(() => {
        applied?.();
        progress?.(++done, event);
      })
      .catch((error: unknown) => {
        failure ??= { error };
      })
      .finally(() => underWay.delete(applying));
    underWay.add(applying);
    if (underWay.size >= AT_ONCE) await Promise.race(underWay);
    return true;
  });
  await Promise.all(underWay);
  if (failure) throw failure.error;
  return begun;
}
