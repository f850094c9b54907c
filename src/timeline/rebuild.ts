import { randomInt, randomUUID } from "node:crypto";
import { kindOf } from "../contracts/keys.js";
import type { Ledger } from "../contracts/ledger.js";
import { inSpan } from "../delivery/traced.js";
import { AppError, oneLine } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import type { Logger } from "../kernel/logger.js";
import { SingleFlight } from "../kernel/single-flight.js";
import { pause, SECOND } from "../kernel/time.js";
import { keptOf } from "./pages.js";
import type { Snapshot, TimelineStore } from "./ports.js";

interface RebuildDeps {
  readonly store: TimelineStore;
  readonly ledger: Ledger;
  readonly log: Logger;
  readonly observe: (outcome: "done" | "overtaken" | "failed", seconds: number) => void;
}

/** Reads what the timeline should hold; `deadline` is in ms since the epoch. */
export type TakeSnapshot = (deadline: number) => Promise<Snapshot>;

/** Longer than a rebuild may take: who holds the lease after that is dead. */
const LEASE_MS = 30 * SECOND;
const REBUILD_MS = 25 * SECOND;
const MAX_ROUNDS = 8;
const POLL_MS = 25;

/** How a timeline is rebuilt. */
interface RebuildOptions {
  /** Also where it is complete already: what it holds is not believed, entries and times alike. */
  readonly afresh?: boolean;
}

/** Makes a stored timeline complete; resolves once it is. */
export type Rebuild = (key: string, takeSnapshot: TakeSnapshot, options?: RebuildOptions) => Promise<void>;

/**
 * Rebuilds timelines, each by one process at a time.
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
  const deadline = Date.now() + REBUILD_MS;
  const owner = randomUUID();
  for (let round = 0; round < MAX_ROUNDS; ) {
    if (!(await deps.store.lease(key, owner, LEASE_MS))) {
      const completed = await completedElsewhere(deps.store, key, deadline);
      if (completed && !task.afresh) return;
      continue;
    }
    try {
      if (await onceThrough(deps, key, { ...task, takeSnapshot: () => task.takeSnapshot(deadline) })) return;
    } finally {
      await deps.store.release(key, owner);
    }
    deps.observe("overtaken", 0);
    round++;
  }
  throw new AppError("unavailable", "the timeline changes faster than it can be rebuilt");
}

async function onceThrough(
  deps: RebuildDeps,
  key: string,
  { takeSnapshot, afresh }: { takeSnapshot: () => Promise<Snapshot>; afresh: boolean },
): Promise<boolean> {
  const { store, ledger } = deps;
  const mark = -randomInt(1, 2 ** 47);
  const held = await store.beginRebuild(key, mark, afresh);
  if (held === undefined) return true;
  await failpoint("rebuild-marked", key);
  const taken = await takeSnapshot();
  const snapshot = { ...taken, entries: keptOf(ledger, taken.entries) };
  await failpoint("rebuild-read", key);
  const drops = snapshot.entries.map(({ drop }) => drop);
  const inSnapshot = new Set(drops);
  // What stays keeps the smaller time, unless the time held is not believed either.
  const gone = afresh ? held : held.filter((drop) => !inSnapshot.has(drop));
  if (!(await store.finishRebuild(key, { mark, gone, snapshot }))) return false;
  const dead = await ledger.deadAmong(drops);
  if (dead.size > 0) await store.remove(key, [...dead]);
  return true;
}

/** Waits while another process rebuilds; true once the timeline is complete, false once nobody rebuilds it any more. */
async function completedElsewhere(store: TimelineStore, key: string, deadline: number): Promise<boolean> {
  while (Date.now() < deadline) {
    const { floor } = await store.read({ key, direction: "older", from: undefined, count: 1 });
    if (floor !== undefined) return true;
    await pause(POLL_MS);
    // The lease is free again where its holder gave up: then it is our turn.
    const probe = randomUUID();
    if (await store.lease(key, probe, LEASE_MS)) {
      await store.release(key, probe);
      return false;
    }
  }
  throw new AppError("unavailable", "another process has not finished rebuilding the timeline in time");
}
