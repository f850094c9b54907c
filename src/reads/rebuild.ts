import { randomInt } from "node:crypto";
import type { BoundedQueue } from "../kernel/concurrency.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { type Lease, underLease } from "../kernel/lease.js";
import type { Logger } from "../kernel/logger.js";
import { SingleFlight } from "../kernel/sharing.js";
import { countdown, MINUTE, pause, SECOND } from "../kernel/time.js";
import {
  GLOBAL,
  type HiddenStore,
  kindOf,
  LOCAL,
  type Snapshot,
  type TimelineStore,
  userOfHome,
  writeUnlessDeleted,
} from "../state/index.js";
import { annotate, inSpan } from "../telemetry/spans.js";
import { type Entries, type PageFences, retainedOf } from "./pages.js";

interface RebuildDeps {
  readonly store: TimelineStore;
  readonly fences: PageFences;
  readonly rebuildQueue: BoundedQueue;
  /** Resolves once Redis holds whose drops the user does not see: a rebuild can mark them in the home then. */
  readonly fillHidden: HiddenStore["fill"];
  readonly log: Logger;
  readonly observe: (outcome: "done" | "overtaken" | "failed", seconds: number) => void;
}

/** Reads the entries that the timeline should have. `deadline` is in ms since the epoch. */
export type TakeSnapshot = (deadline: number) => Promise<Snapshot>;

/** Makes a snapshot of entries that are complete down to `floor`. The first one that does not fit raises the floor. */
export function snapshotOf(entries: Entries, maxEntries: number, floor: number): Snapshot {
  const rest = entries[maxEntries];
  return { entries: entries.slice(0, maxEntries), floor: rest ? Math.max(floor, rest.score, 1) : floor };
}

const REBUILD_MS = 5 * MINUTE;
const MAX_ROUNDS = 8;
const POLL_MIN_MS = 25;
const POLL_MAX_MS = SECOND / 2;

interface RebuildOptions {
  /** True: also rebuilds a complete timeline, and keeps none of its entries and times. */
  readonly afresh?: boolean;
  /** Takes at most half of the places of the queue. Default: the timeline itself. */
  readonly owner?: string | undefined;
}

export type Rebuild = (key: string, takeSnapshot: TakeSnapshot, options?: RebuildOptions) => Promise<void>;

/**
 * Rebuilds timelines. One process at a time rebuilds a timeline, and each process a few timelines at a time, in the
 * order of the calls. A rebuild continues when its callers have gone, so that the next read finds the timeline
 * complete: if it ended with its last caller, a home that takes longer to rebuild than its readers wait would never be
 * complete. A rebuild takes one slot of the queue and ends with its first upstream call that fails; a call takes 5 s at
 * most.
 *
 * A rebuild writes a mark, reads a snapshot from the upstreams, and writes the snapshot if the mark is still there.
 * Fan-out continues meanwhile: entries written after the mark stay; entries that were there before it and are not in
 * the snapshot are removed. A follow, an unfollow or the loss of the key could make the snapshot wrong: they remove the
 * mark, and the rebuild starts over. Tombstones are read after the write.
 */
export function createRebuild(deps: RebuildDeps): Rebuild {
  const flight = new SingleFlight<void>();
  return (key, takeSnapshot, { afresh = false, owner = key } = {}) =>
    flight.run(afresh ? `afresh ${key}` : key, async () => {
      const started = performance.now();
      const seconds = (): number => (performance.now() - started) / 1_000;
      try {
        // The span belongs to the read that asked first; it may outlast that read.
        await inSpan("rebuild", { attributes: { "timeline.kind": kindOf(key), "timeline.afresh": afresh } }, () =>
          rebuild(deps, key, { takeSnapshot, afresh, owner }),
        );
        deps.observe("done", seconds());
      } catch (error) {
        deps.observe("failed", seconds());
        deps.log.warn({ timeline: kindOf(key), error: oneLine(error) }, "a timeline could not be rebuilt");
        throw error;
      }
    });
}

interface Task {
  readonly takeSnapshot: TakeSnapshot;
  readonly afresh: boolean;
  readonly owner: string;
}

async function rebuild(deps: RebuildDeps, key: string, task: Task): Promise<void> {
  const lease: Lease = deps.store.rebuildLease(key);
  // Local and global come from the log, and are only two: they do not wait for homes.
  const rebuildQueue: BoundedQueue = key === LOCAL || key === GLOBAL ? (work) => work() : deps.rebuildQueue;
  while (!(await rebuildQueue(() => underLease(lease, () => rebuildInRounds(deps, key, task)), task.owner))) {
    if (await completedElsewhere(deps.store, key, task.afresh)) return;
  }
}

async function rebuildInRounds(deps: RebuildDeps, key: string, task: Task): Promise<void> {
  const deadline = Date.now() + REBUILD_MS;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    if (await rebuildOnce(deps, key, { ...task, deadline })) return;
    deps.observe("overtaken", 0);
  }
  throw new AppError("unavailable", "the timeline changes faster than it can be rebuilt");
}

async function rebuildOnce(
  { store, fences, fillHidden }: RebuildDeps,
  key: string,
  { takeSnapshot, afresh, deadline }: Task & { readonly deadline: number },
): Promise<boolean> {
  const user = userOfHome(key);
  if (user !== undefined) await fillHidden(user, deadline);
  const mark = -randomInt(1, 2 ** 47);
  const before = await store.beginRebuild(key, mark, afresh);
  if (typeof before === "string") return before === "complete";
  await failpoint("rebuild-marked", key);
  const taken = await takeSnapshot(deadline);
  const snapshot = { ...taken, entries: retainedOf(fences, taken.entries) };
  await failpoint("rebuild-read", key);
  const drops = snapshot.entries.map(({ drop }) => drop);
  annotate({ "timeline.entries": drops.length });
  const inSnapshot = new Set(drops);
  // Entries that stay keep the smaller of two times, except afresh.
  const gone = afresh ? before : before.filter((drop) => !inSnapshot.has(drop));
  const written = await writeUnlessDeleted(drops, {
    write: () => store.finishRebuild(key, { mark, gone, snapshot }),
    tombstonedAmong: fences.tombstonedAmong,
    remove: (deleted) => store.remove(key, deleted),
  });
  return written !== undefined;
}

/** Resolves to true once the timeline is complete (never if `afresh`), to false once the lease is free. */
async function completedElsewhere(store: TimelineStore, key: string, afresh: boolean): Promise<boolean> {
  const msLeft = countdown(REBUILD_MS);
  for (let wait = POLL_MIN_MS; msLeft() > 0; wait = Math.min(2 * wait, POLL_MAX_MS)) {
    await pause(wait);
    if (!afresh && (await store.isComplete(key))) return true;
    if ((await store.rebuildLeaseLeft(key)) === 0) return false;
  }
  throw new AppError("unavailable", "another process has not finished rebuilding the timeline in time");
}
