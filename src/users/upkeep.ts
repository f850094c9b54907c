import { oneLine } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { DAY, MINUTE, pause } from "../kernel/time.js";
import type { Drift, ListName, ObserveUsers, UpkeepStore } from "./ports.js";

/**
 * How long inactive edges are kept. On the follower side they keep older versions of their pair from being applied: twice
 * as long as a dead letter can be redriven.
 */
export const KEPT_MS: Readonly<Record<ListName, number>> = { following: 30 * DAY, followers: 60 * DAY };

const PRUNED_AT_ONCE = 1_000;
/** At most this many times in a round, so that a round ends. */
const PRUNES = 20;
const SAMPLE = 50;
const EVERY_MS = MINUTE;

/** What the upkeep works with. */
export interface UpkeepDeps {
  readonly store: UpkeepStore;
  readonly log: Logger;
  readonly observe: Pick<ObserveUsers, "pruned" | "drifted">;
}

/** What a round did. */
export interface UpkeepReport {
  readonly pruned: number;
  readonly drifts: readonly Drift[];
}

/** One round: removes old inactive edges, and compares some counts with the rows. Rejects while the database is away. */
export async function keepUp({ store, log, observe }: UpkeepDeps, stopping?: AbortSignal): Promise<UpkeepReport> {
  let pruned = 0;
  const drifts: Drift[] = [];
  for (const list of ["following", "followers"] as const) {
    for (let time = 0; time < PRUNES && !stopping?.aborted; time++) {
      const gone = await store.prune(list, KEPT_MS[list], PRUNED_AT_ONCE);
      observe.pruned(list, gone);
      pruned += gone;
      if (gone < PRUNED_AT_ONCE) break;
    }
    if (!stopping?.aborted) drifts.push(...(await store.calibrate(list, SAMPLE)));
  }
  for (const { list, user, counted, rows } of drifts) {
    observe.drifted(list, counted - rows);
    log.warn({ list, user: encodeId(user), counted, rows }, "a count did not agree with its rows, and was put right");
  }
  return { pruned, drifts };
}

/** Does a round now and then; any number of processes may, each step is one's at a time. */
export function startUpkeep(deps: UpkeepDeps, everyMs: number = EVERY_MS): { close(): Promise<void> } {
  const stopping = new AbortController();
  const run = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await pause(everyMs * (0.5 + Math.random()), stopping.signal);
      if (stopping.signal.aborted) return;
      await keepUp(deps, stopping.signal).catch((error: unknown) => {
        deps.log.debug({ error: oneLine(error) }, "the follow graph could not be looked after");
      });
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
