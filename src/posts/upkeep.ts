import { randomUUID } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";
import { codeOf, oneLine } from "../kernel/errors.js";
import type { Logger } from "../kernel/logger.js";
import { backoff, type Clock, DAY, MINUTE, pause, SECOND } from "../kernel/time.js";
import { CALIBRATION_STEPS, createCalibration } from "./calibration.js";
import { monthOf, monthsFrom } from "./months.js";
import type { ObservePosts } from "./observe.js";
import type { PostsStore } from "./ports.js";

/** What the upkeep works with. */
export interface UpkeepDeps {
  readonly store: Pick<PostsStore, "partitions" | "retention" | "cleanup" | "lease" | "calibration">;
  readonly now: Clock;
  /** Months that ended longer ago are dropped; 0: no more of them are. */
  readonly retentionDays: number;
  /** Unset: a minute. */
  readonly everyMs?: number;
  readonly log: Logger;
  readonly observe: Pick<ObservePosts, "months" | "removed" | "upkeepFailed" | "calibrated">;
}

/** One piece of the upkeep. `mayGoOn` is asked before each step. */
interface Task {
  readonly name: string;
  run(mayGoOn: () => Promise<boolean>): Promise<void>;
}

const MONTHS_AHEAD = 3;
/** Foreign objects are kept so long after they expired. */
const REMOTE_KEPT_MS = 90 * DAY;
/** A round removes at most 100,000 rows of a kind. */
const ROWS_AT_ONCE = 2_000;
const STEPS_A_ROUND = 50;
const EVERY_MS = MINUTE;
/** Who holds the upkeep prolongs it at each step; another one takes over after so many rounds without. */
const LEASE_ROUNDS = 3;

/**
 * Starts the upkeep: partitions are made ahead and dropped when they are old, what is no longer needed is removed, and
 * the counts are calibrated. Of any number of processes one does it; what fails is logged once, and tried again.
 */
export function startUpkeep(deps: UpkeepDeps): { close(): Promise<void> } {
  const stopping = new AbortController();
  const { log, store, everyMs = EVERY_MS } = deps;
  const holder = randomUUID();
  const round = createUpkeepRound(deps, holder);
  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted; ) {
      try {
        await round(stopping.signal);
        failures = 0;
      } catch (error) {
        failures += 1;
        if (failures === 1) log.warn({ error: oneLine(error) }, "the upkeep of posts waits for the database");
      }
      const waitMs = failures === 0 ? everyMs * (0.5 + Math.random()) : backoff(failures, SECOND, EVERY_MS);
      await pause(waitMs, stopping.signal);
    }
    await store.lease.release(holder).catch(() => undefined);
  };
  const running = run();
  return {
    close: async () => {
      stopping.abort();
      await running;
    },
  };
}

/**
 * Makes one round of the upkeep: each task for a bounded time, unless another process has the upkeep.
 *
 * @returns rejects with AppError `unavailable` where the database is away; other failures are logged
 */
export function createUpkeepRound(deps: UpkeepDeps, holder: string): (stopping?: AbortSignal) => Promise<void> {
  const { store, log, observe, everyMs = EVERY_MS } = deps;
  const tasks = tasksOf(deps);
  const failing = new Set<string>();
  return async (stopping) => {
    const mayGoOn = async (): Promise<boolean> => {
      // The embedded database answers without a turn of the loop: everybody else gets theirs here.
      await nextTurn();
      return stopping?.aborted !== true && (await store.lease.hold(holder, LEASE_ROUNDS * Math.max(everyMs, MINUTE)));
    };
    let away: unknown;
    for (const { name, run } of tasks) {
      // Where the whole database is away this rejects, and ends the round.
      if (!(await mayGoOn())) return;
      try {
        await run(mayGoOn);
        failing.delete(name);
      } catch (error) {
        if (codeOf(error) === "unavailable") {
          away ??= error;
          continue;
        }
        observe.upkeepFailed(name);
        if (!failing.has(name)) log.error({ task: name, error: oneLine(error) }, "the upkeep of posts failed");
        failing.add(name);
      }
    }
    if (away !== undefined) throw away;
  };
}

function tasksOf(deps: UpkeepDeps): Task[] {
  const { cleanup, calibration: drops, lease, retention } = deps.store;
  const calibration = createCalibration({ drops, lease, log: deps.log, observe: deps.observe });
  const removing = (name: string, remove: (limit: number) => Promise<number>): Task => ({
    name,
    run: (mayGoOn) => removeAll(deps, name, remove, mayGoOn),
  });
  return [
    { name: "months-ahead", run: () => makeMonths(deps) },
    { name: "old-months", run: (mayGoOn) => dropMonths(deps, mayGoOn) },
    removing("keys", cleanup.pruneKeys),
    removing("tombstones", cleanup.purgeTombstones),
    removing("remote-objects", (limit) => cleanup.pruneRemoteObjects(REMOTE_KEPT_MS, limit)),
    removing("remote-drops", async (limit) => cleanup.pruneRemoteDrops(await retention.keptSince(), limit)),
    { name: "calibration", run: async (mayGoOn) => void (await calibration(CALIBRATION_STEPS, mayGoOn)) },
  ];
}

async function makeMonths({ store, now, observe }: UpkeepDeps): Promise<void> {
  for (const month of monthsFrom(now(), 1 + MONTHS_AHEAD))
    if (await store.partitions.make(month)) observe.months("made", 1);
}

async function dropMonths(
  { store, now, retentionDays, log, observe }: UpkeepDeps,
  mayGoOn: () => Promise<boolean>,
): Promise<void> {
  // Foreign drops and timelines go by this time, too: it is a whole month's, and said before the month goes.
  const wanted = retentionDays === 0 ? 0 : monthOf(now() - retentionDays * DAY).start;
  const keptSince = await store.retention.raise(wanted);
  const old = (await store.partitions.months()).filter(({ end }) => end <= keptSince);
  for (const month of old) {
    if (!(await mayGoOn())) return;
    await store.partitions.drop(month);
    observe.months("dropped", 1);
    log.info({ month: month.name }, "drops of a month are older than they are kept, and were dropped");
  }
}

async function removeAll(
  { observe }: UpkeepDeps,
  what: string,
  remove: (limit: number) => Promise<number>,
  mayGoOn: () => Promise<boolean>,
): Promise<void> {
  for (let step = 0; step < STEPS_A_ROUND && (await mayGoOn()); step++) {
    const removed = await remove(ROWS_AT_ONCE);
    observe.removed(what, removed);
    if (removed === 0) return;
  }
}
