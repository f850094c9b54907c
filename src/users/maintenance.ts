import { encodeId } from "../kernel/ids.js";
import type { Logger } from "../kernel/logger.js";
import { type Loop, startLoop, warnOnce } from "../kernel/loop.js";
import { DAY, MINUTE, SECOND } from "../kernel/time.js";
import type { ApprovalStore } from "./approvals.sql.js";
import { afterChange, type FollowsDeps } from "./follows.js";
import type { Drift, MaintenanceStore, Pruned } from "./maintenance.sql.js";
import { observeUsers } from "./observe.js";

/** Inactive followers keep older versions from being applied, twice as long as a dead letter can be redriven. */
export const KEPT_MS: Readonly<Record<Pruned, number>> = {
  following: 30 * DAY,
  followers: 60 * DAY,
  relations: 60 * DAY,
};

const PRUNED_AT_ONCE = 1_000;
const MAX_PRUNES = 20;
const SAMPLE = 50;

interface MaintenanceDeps {
  readonly store: MaintenanceStore;
  readonly log: Logger;
}

/** Removes old inactive rows, and compares some counts with the rows. Rejects while the database is unavailable. */
export async function maintain(
  { store, log }: MaintenanceDeps,
  stopping?: AbortSignal,
): Promise<{ readonly pruned: number; readonly drifts: readonly Drift[] }> {
  let pruned = 0;
  const drifts: Drift[] = [];
  for (const rows of ["following", "followers", "relations"] as const) {
    for (let time = 0; time < MAX_PRUNES && !stopping?.aborted; time++) {
      const gone = await store.prune(rows, KEPT_MS[rows], PRUNED_AT_ONCE);
      observeUsers.pruned(rows, gone);
      pruned += gone;
      if (gone < PRUNED_AT_ONCE) break;
    }
  }
  for (const list of ["following", "followers"] as const)
    if (!stopping?.aborted) drifts.push(...(await store.calibrate(list, SAMPLE)));
  for (const { list, user, counted, rows } of drifts) {
    observeUsers.drifted(list, counted - rows);
    log.warn({ list, user: encodeId(user), counted, rows }, "a count differed from its rows, and was corrected");
  }
  return { pruned, drifts };
}

/** Several processes may run it at once. */
export function startMaintenance(deps: MaintenanceDeps, everyMs = MINUTE): Loop {
  return startLoop({
    work: async (stopping) => {
      await maintain(deps, stopping);
    },
    everyMs,
    firstAfterMs: everyMs,
    jitter: true,
    failed: warnOnce(deps.log, "the maintenance of the follow graph failed; it is tried again"),
  });
}

const ACCEPTED_AT_ONCE = 250;

/** Pause after each request, so that very many of them leave room for the follows of others. */
const ACCEPTING_PAUSE_MS = 0.4;

interface AcceptingDeps extends Pick<FollowsDeps, "cache" | "wakeRelay" | "maxFollowing"> {
  readonly accept: ApprovalStore["accept"];
  readonly log: Logger;
}

/** Accepts the requests of users who have switched approval off, batch by batch. Several processes may run it. */
export function startAccepting({ accept, log, ...deps }: AcceptingDeps): Loop {
  return startLoop({
    work: async () => {
      const turn = await accept(ACCEPTED_AT_ONCE, deps.maxFollowing);
      if (turn === undefined) return undefined;
      const { followers, withdrawn } = turn;
      observeUsers.followed("follow", followers.length);
      observeUsers.followed("withdrawal", withdrawn);
      if (followers.length > 0) await afterChange(deps, followers);
      return followers.length * ACCEPTING_PAUSE_MS;
    },
    everyMs: SECOND,
    failed: warnOnce(log, "requests to follow users who approve no longer cannot be accepted; it is tried again"),
  });
}

const ENDED_AT_ONCE = 500;

interface EndMutesDeps {
  readonly endMutes: (limit: number) => Promise<number>;
  readonly wakeRelay: () => void;
  readonly log: Logger;
}

/** Ends mutes a second after their end at the latest, also those that ended while no process ran. Several may run it. */
export function startEndingMutes({ endMutes, wakeRelay, log }: EndMutesDeps): Loop {
  return startLoop({
    work: async () => {
      const ended = await endMutes(ENDED_AT_ONCE);
      if (ended === 0) return undefined;
      observeUsers.related("mute-ended", ended);
      wakeRelay();
      return ended === ENDED_AT_ONCE ? 0 : undefined;
    },
    everyMs: SECOND,
    failed: warnOnce(log, "mutes whose time is over could not be ended; it is tried again"),
  });
}
