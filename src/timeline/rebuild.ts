import { randomInt, randomUUID } from "node:crypto";
import type { Fences } from "../contracts/fences.js";
import { kindOf } from "../contracts/keys.js";
import { annotate, inSpan } from "../delivery/traced.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { InTurn } from "../kernel/in-turn.js";
import type { Logger } from "../kernel/logger.js";
import { SingleFlight } from "../kernel/single-flight.js";
import { MINUTE, pause, SECOND } from "../kernel/time.js";
import { keptOf } from "./pages.js";
import type { Snapshot, TimelineStore } from "./ports.js";

interface RebuildDeps {
  readonly store: TimelineStore;
  readonly fences: Fences;
  readonly inTurn: InTurn;
  readonly log: Logger;
  readonly observe: (outcome: "done" | "overtaken" | "failed", seconds: number) => void;
}

/** Reads what the timeline should hold; `deadline` is in ms since the epoch. */
export type TakeSnapshot = (deadline: number) => Promise<Snapshot>;

/** Renewed while a rebuild runs: where it runs out, its holder is dead. */
const LEASE_MS = 10 * SECOND;
const RENEW_EVERY_MS = LEASE_MS / 4;
/** How long one rebuild may take, once it is its turn; the calls of older ones come before its own. */
const REBUILD_MS = 5 * MINUTE;
const MAX_ROUNDS = 8;
/** How often a rebuild by another process is looked at: soon at first, then less often. */
const POLL_MIN_MS = 25;
const POLL_MAX_MS = SECOND / 2;

/** How a timeline is rebuilt. */
interface RebuildOptions {
  /** Also where it is complete already: what it holds is not believed, entries and times alike. */
  readonly afresh?: boolean;
}

/** Makes a stored timeline complete; resolves once it is. */
export type Rebuild = (key: string, takeSnapshot: TakeSnapshot, options?: RebuildOptions) => Promise<void>;

/**
 * Rebuilds timelines, each by one process at a time, and in each process a few at a time, in the order they were asked
 * for. A rebuild goes on when its callers have gone, so that the next read finds the timeline complete.
 *
 * A rebuild first plants a mark, then reads the upstreams, then writes what it
 * read, if the mark still stands. Fan-out goes on meanwhile: what it writes
 * after the mark stays, what had been there before the mark and is not in the
 * snapshot goes. Whatever could make the snapshot untrue (a follow, an
 * unfollow, the loss of the key) takes the mark away, and the rebuild starts
 * over. Deletions are looked up after the write.
 */
export function createRebuild(deps: RebuildDeps): Rebuild {
  const flight = new SingleFlight<void>();
  return (key, takeSnapshot, { afresh = false } = {}) =>
    flight.run(afresh ? `afresh ${key}` : key, async () => {
      const started = performance.now();
      const seconds = (): number => (performance.now() - started) / 1_000;
      try {
        // A span of the read that asked first; it may outlast that read.
        await inSpan("rebuild", { attributes: { "timeline.kind": kindOf(key), "timeline.afresh": afresh } }, () =>
          rebuild(deps, key, { takeSnapshot, afresh }),
        );
        deps.observe("done", seconds());
      } catch (error) {
        deps.observe("failed", seconds());
        deps.log.warn({ error: oneLine(error) }, "a timeline could not be rebuilt");
        throw error;
      }
    });
}

interface Task {
  readonly takeSnapshot: TakeSnapshot;
  readonly afresh: boolean;
}

async function rebuild(deps: RebuildDeps, key: string, task: Task): Promise<void> {
  const owner = randomUUID();
  // Local and global come from the log, and are two: they do not wait for homes.
  const inTurn: InTurn = kindOf(key) === "home" ? deps.inTurn : (work) => work();
  // Whoever waits for another process leaves its turn to others.
  while (!(await inTurn(() => rebuildOwned(deps, key, { ...task, owner })))) {
    if (await completedElsewhere(deps.store, key, task.afresh)) return;
  }
}

/** False where another process has the lease. */
async function rebuildOwned(deps: RebuildDeps, key: string, task: Task & { owner: string }): Promise<boolean> {
  const { store } = deps;
  const hold = (): Promise<boolean> => store.lease(key, task.owner, LEASE_MS);
  if (!(await hold())) return false;
  const renewing = setInterval(() => void hold().catch(() => undefined), RENEW_EVERY_MS);
  try {
    const deadline = Date.now() + REBUILD_MS;
    for (let round = 0; round < MAX_ROUNDS; round++) {
      if (await onceThrough(deps, key, { ...task, takeSnapshot: () => task.takeSnapshot(deadline) })) return true;
      deps.observe("overtaken", 0);
    }
    throw new AppError("unavailable", "the timeline changes faster than it can be rebuilt");
  } finally {
    clearInterval(renewing);
    await store.release(key, task.owner);
  }
}

async function onceThrough(
  deps: RebuildDeps,
  key: string,
  { takeSnapshot, afresh }: { takeSnapshot: () => Promise<Snapshot>; afresh: boolean },
): Promise<boolean> {
  const { store, fences } = deps;
  const mark = -randomInt(1, 2 ** 47);
  const held = await store.beginRebuild(key, mark, afresh);
  if (held === undefined) return true;
  await failpoint("rebuild-marked", key);
  const taken = await takeSnapshot();
  const snapshot = { ...taken, entries: keptOf(fences, taken.entries) };
  await failpoint("rebuild-read", key);
  const drops = snapshot.entries.map(({ drop }) => drop);
  annotate({ "timeline.entries": drops.length });
  const inSnapshot = new Set(drops);
  // What stays keeps the smaller time, unless the time held is not believed either.
  const gone = afresh ? held : held.filter((drop) => !inSnapshot.has(drop));
  if (!(await store.finishRebuild(key, { mark, gone, snapshot }))) return false;
  const dead = await fences.tombstonedAmong(drops);
  if (dead.size > 0) await store.remove(key, [...dead]);
  return true;
}

/**
 * Waits while another process rebuilds, as long as its lease lasts; true once the timeline is complete, false once
 * nobody rebuilds it any more. A rebuild afresh is not satisfied by another's.
 */
async function completedElsewhere(store: TimelineStore, key: string, afresh: boolean): Promise<boolean> {
  const deadline = Date.now() + REBUILD_MS;
  for (let wait = POLL_MIN_MS; Date.now() < deadline; wait = Math.min(2 * wait, POLL_MAX_MS)) {
    await pause(wait);
    if (!afresh) {
      const { floor } = await store.read({ key, direction: "older", from: undefined, count: 1 });
      if (floor !== undefined) return true;
    }
    if ((await store.leaseLeft(key)) === 0) return false;
  }
  throw new AppError("unavailable", "another process has not finished rebuilding the timeline in time");
}
