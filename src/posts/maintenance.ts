import { randomUUID } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { AppError, codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { startLoop, warnOnce } from "../kernel/loop.js";
import { type Clock, DAY, MINUTE } from "../kernel/time.js";
import { dropDeleted } from "./drops/events.js";
import { FIRST_ID, monthOf, monthsFrom } from "./drops/ids.js";
import { observePosts } from "./drops/observe.js";
import type { Calibration, ReactionStore } from "./reactions/reactions.sql.js";
import { decideWaiting } from "./remote/audience.js";
import { type DeletedActorsDeps, eraseDeletedActors } from "./remote/deleted-actors.js";
import type { LinkDeps } from "./remote/deps.js";
import { LINKS_TASK, linkDrops } from "./remote/links.js";
import { linkReactions, REACTIONS_TASK } from "./remote/reaction-links.js";
import type { PostsStore } from "./store.sql.js";

export interface MaintenanceDeps {
  readonly store: PostsStore;
  readonly now: Clock;
  readonly eraseUser?: DeletedActorsDeps["eraseUser"];
  readonly retentionDays: number;
  readonly config?: LinkDeps["config"];
  readonly everyMs?: number;
  readonly log: Logger;
}

type Task = (mayContinue: () => Promise<boolean>) => Promise<void>;

const MONTHS_AHEAD = 3;
const REMOTE_KEPT_MS = 90 * DAY;
const ROWS_AT_ONCE = 2_000;
const ERASURES_AT_ONCE = 200;
const STEPS_A_ROUND = 50;
/** Each step renews the lease; another process takes over after this many rounds without a renewal. */
const LEASE_ROUNDS = 3;

/**
 * One process at a time does the maintenance. A failure is logged once, and tried again. No process is ready
 * while the present month has no partitions and none can be made.
 */
export function startMaintenance(deps: MaintenanceDeps): { notReady(): string | undefined; close(): Promise<void> } {
  const { log, store, now, everyMs = MINUTE } = deps;
  const holder = randomUUID();
  const round = createMaintenanceRound(deps, holder);
  let lack: string | undefined;
  const loop = startLoop({
    work: async (stopping) => {
      lack = await store.partitions.lack([monthOf(now())]);
      await round(stopping);
    },
    everyMs,
    jitter: true,
    backoffCapMs: MINUTE,
    failed: warnOnce(log, "the maintenance of posts waits for the database"),
  });
  return {
    notReady: () => (lack === undefined ? undefined : `posts: ${lack}`),
    close: async () => {
      await loop.close();
      await store.lease.release(holder).catch(() => undefined);
    },
  };
}

/** Rejects with AppError `unavailable` while the database is unavailable; other failures are logged. */
export function createMaintenanceRound(
  deps: MaintenanceDeps,
  holder: string,
): (stopping?: AbortSignal) => Promise<void> {
  const { store, log, everyMs = MINUTE } = deps;
  const tasks = tasksOf(deps);
  const failing = new Set<string>();
  observePosts.maintaining(Object.keys(tasks));
  return async (stopping) => {
    const mayContinue = async (): Promise<boolean> => {
      // The embedded database answers without yielding to the event loop; other work gets a turn here.
      await nextTurn();
      return stopping?.aborted !== true && (await store.lease.hold(holder, LEASE_ROUNDS * Math.max(everyMs, MINUTE)));
    };
    let away: unknown;
    for (const [name, run] of Object.entries(tasks)) {
      if (!(await mayContinue())) return;
      try {
        await run(mayContinue);
        failing.delete(name);
      } catch (error) {
        if (codeOf(error) === "unavailable") {
          away ??= error;
          continue;
        }
        observePosts.maintenanceFailed(name);
        if (!failing.has(name)) log.error({ task: name, error: oneLine(error) }, "a maintenance task of posts failed");
        failing.add(name);
      }
    }
    if (away !== undefined) throw away;
  };
}

function tasksOf(deps: MaintenanceDeps): Readonly<Record<string, Task>> {
  const { cleanup, reactions: drops, lease, retention, remote, remoteReactions, reposts } = deps.store;
  const calibration = createCalibration({ drops, lease, log: deps.log });
  const removing = (name: string, remove: (limit: number) => Promise<number>): Record<string, Task> => ({
    [name]: async (mayContinue) => {
      for (let step = 0; step < STEPS_A_ROUND && (await mayContinue()); step++) {
        const removed = await remove(ROWS_AT_ONCE);
        observePosts.removed(name, removed);
        if (removed === 0) return;
      }
    },
  });
  return {
    "months-ahead": () => makeMonths(deps),
    "old-months": (mayContinue) => dropMonths(deps, mayContinue),
    ...removing("keys", cleanup.pruneKeys),
    ...removing("tombstones", cleanup.purgeTombstones),
    ...removing("reposts-of-old-drops", async (limit) => reposts.removeOlder(await retention.start(), limit)),
    ...removing(LINKS_TASK, (limit) => linkDrops(deps, limit)),
    ...removing(REACTIONS_TASK, (limit) => linkReactions(deps, limit)),
    "erasures-of-deleted-actors": async () => void (await eraseDeletedActors(deps, ERASURES_AT_ONCE)),
    ...removing("drops-of-deleted-actors", (limit) => remote.removeDropsOfDeleted({ limit, eventOf: dropDeleted })),
    "drops-that-await-their-actor": async () => void (await decideWaiting(deps)),
    ...removing("remote-objects", (limit) => cleanup.pruneRemoteObjects(REMOTE_KEPT_MS, limit)),
    ...removing("remote-reactions", (limit) => remoteReactions.pruneDeleted(REMOTE_KEPT_MS, limit)),
    ...removing("remote-drops", async (limit) => cleanup.pruneRemoteDrops(await retention.start(), limit)),
    ...removing("fetches", cleanup.pruneFetches),
    calibration: async (mayContinue) => void (await calibration(CALIBRATION_STEPS, mayContinue)),
  };
}

async function makeMonths({ store, now }: MaintenanceDeps): Promise<void> {
  const months = monthsFrom(now(), 1 + MONTHS_AHEAD);
  const lack = await store.partitions.lack(months);
  // An outage would only be waited for.
  if (lack !== undefined) throw new AppError("failed", lack);
  for (const month of months) if (await store.partitions.make(month)) observePosts.months("made");
}

async function dropMonths(deps: MaintenanceDeps, mayContinue: () => Promise<boolean>): Promise<void> {
  const { store, now, retentionDays, log } = deps;
  // Remote drops and timelines use this time, too: it is the start of a month, and raised before the month is dropped.
  const wanted = retentionDays === 0 ? 0 : monthOf(now() - retentionDays * DAY).start;
  const retentionStart = await store.retention.raise(wanted);
  const old = (await store.partitions.months()).filter(({ end }) => end <= retentionStart);
  for (const month of old) {
    if (!(await mayContinue())) return;
    await store.partitions.drop(month);
    observePosts.months("dropped");
    log.info({ month: month.name }, "a month of drops reached the end of its retention, and was removed");
  }
}

const DROPS_A_STEP = 200;
/** Maximum number of reactions that one statement reads, unless a single drop has more. */
const REACTIONS_AT_ONCE = 100_000;
const CALIBRATION_STEPS = 20;

export interface CalibrationDeps {
  readonly drops: Pick<ReactionStore, "next" | "calibrate">;
  readonly lease: Pick<PostsStore["lease"], "walkedTo" | "walkTo">;
  readonly log: Logger;
}

/** Each call continues where the last one stopped; after the last drop it starts again. */
export function createCalibration(deps: CalibrationDeps) {
  const { drops, lease, log } = deps;
  return async (steps: number, mayContinue: () => Promise<boolean> = async () => true) => {
    const total = { checked: 0, corrected: 0, overdue: 0 };
    for (let step = 0; step < steps && (await mayContinue()); step++) {
      const span = await drops.next(await lease.walkedTo(), DROPS_A_STEP);
      for (const ids of portionsOf(span)) {
        const result = await calibrateSome(deps, ids);
        total.corrected += result.corrected;
        total.overdue += result.overdue;
        observePosts.calibrated(result);
      }
      total.checked += span.length;
      const isLast = span.length < DROPS_A_STEP;
      await lease.walkTo(isLast ? FIRST_ID : (span.at(-1)?.drop_id ?? FIRST_ID));
      if (isLast) break;
    }
    if (total.corrected > 0) log.warn(total, "counts differed from the counted reactions, and were corrected");
    if (total.overdue > 0) log.warn(total, "reactions whose events never arrived were counted");
    return total;
  };
}

/** Drops that cannot be compared are skipped, so that the others are compared. */
async function calibrateSome({ drops, log }: CalibrationDeps, ids: readonly string[]): Promise<Calibration> {
  try {
    return await drops.calibrate(ids);
  } catch (error) {
    if (codeOf(error) === "unavailable") throw error;
    log.error({ drops: ids.length, first: ids[0], error: oneLine(error) }, "counts cannot be compared");
    return { corrected: 0, overdue: 0 };
  }
}

function portionsOf(span: Awaited<ReturnType<ReactionStore["next"]>>): string[][] {
  const portions: string[][] = [];
  let room = -1;
  for (const { drop_id, reactions } of span) {
    if (reactions > room) {
      portions.push([]);
      room = REACTIONS_AT_ONCE;
    }
    portions.at(-1)?.push(drop_id);
    room -= reactions;
  }
  return portions;
}
