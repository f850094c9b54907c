import { MAX_JOB_CHANGES, type NotificationJob } from "../contracts/notification-jobs.js";
import type { BatchHandler, Delivery, Handler, Handlers } from "../delivery/handler.js";
import { allOf, chunked, grouped } from "../kernel/concurrency.js";
import { codeOf } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { Foreground } from "../kernel/foreground.js";
import { SECOND, sharedNow } from "../kernel/time.js";
import type { Erased, Fences } from "../state/index.js";
import { type Change, type Effects, effectsOf } from "./changes.js";
import { type JudgeDeps, judge } from "./judge.js";
import { observeMade } from "./observe.js";
import type { Made, NotificationStore } from "./store.sql.js";

export interface ApplyDeps extends JudgeDeps {
  readonly store: Pick<NotificationStore, "write" | "removeDrops">;
  readonly fences: Pick<Fences, "recordTombstones" | "tombstonedAmong">;
  readonly erased: Pick<Erased, "among">;
  readonly tell: (made: readonly Made[]) => Promise<void>;
  /** Resolves after every PubAck. */
  readonly queue: (jobs: readonly NotificationJob[]) => Promise<void>;
}

/** Maximum number of changes in a batch of a user who is not hot. A batch is full only while events wait. */
const FEW_CHANGES = 20;
/** Maximum time that a job waits for a moment without batches of events, ms. */
const JOBS_WAIT_MS = SECOND / 4;

/**
 * Makes the handlers of DROPS and ACTIVITY, and those of jobs. Events may come late, twice and in any order. A batch in
 * which one user gets very many notifications shows that events wait: the changes of this user become jobs, so that
 * those of others do not wait for them.
 */
export function createHandlers(deps: ApplyDeps): Readonly<Record<"events" | "jobs", Handlers>> {
  const single: Handler = (delivery) => apply(deps, [effectsOf(delivery)], [delivery.body]);
  const events = batched(async (all, bodies) => {
    const { few, jobs } = divided(all);
    // Late writes must not follow those of the next attempt.
    await allOf([apply(deps, few, bodies), deps.queue(jobs)]);
  });
  const beforeJobs = new Foreground(JOBS_WAIT_MS);
  const jobs = batched(async (all, bodies) => {
    await beforeJobs.untilIdle();
    await apply(deps, all, bodies);
  });
  return {
    events: { single, batch: (...batch) => beforeJobs.run(() => events(...batch)) },
    jobs: { single, batch: jobs },
  };
}

function batched(applyAll: (all: readonly Effects[], bodies: readonly Uint8Array[]) => Promise<void>): BatchHandler {
  return async (deliveries) => {
    const understood = deliveries.flatMap((delivery) => {
      const effects = effectsUnlessInvalid(delivery);
      return effects === undefined ? [] : [{ delivery, effects }];
    });
    const bodies = understood.map(({ delivery }) => delivery.body);
    await applyAll(
      understood.map(({ effects }) => effects),
      bodies,
    );
    const done = new Set(understood.map(({ delivery }) => delivery));
    return deliveries.filter((delivery) => !done.has(delivery));
  };
}

/** Divides the changes into those of users with few of them, and jobs for hot users. */
function divided(all: readonly Effects[]): { readonly few: readonly Effects[]; readonly jobs: NotificationJob[] } {
  const byUser = grouped(
    all.flatMap(({ changes }) => changes),
    ({ user }) => user,
  );
  const hot = [...byUser].filter(([, { length }]) => length > FEW_CHANGES);
  if (hot.length === 0) return { few: all, jobs: [] };
  const isHot = new Set(hot.map(([user]) => user));
  return {
    few: all.map((effects) => ({ ...effects, changes: effects.changes.filter(({ user }) => !isHot.has(user)) })),
    jobs: hot.flatMap(([, changes]) => chunked(changes, MAX_JOB_CHANGES).map((chunk) => ({ changes: chunk }))),
  };
}

function effectsUnlessInvalid(delivery: Delivery): Effects | undefined {
  try {
    return effectsOf(delivery);
  } catch (error) {
    if (codeOf(error) === "invalid") return undefined;
    throw error;
  }
}

/**
 * Tombstones are set before what tells of a drop is removed, and looked for after the write: either the deletion finds
 * the row, or the write finds the tombstone. They are looked for before the write, too: a repost that was never told
 * does not keep the next one from being told.
 */
async function apply(deps: ApplyDeps, all: readonly Effects[], bodies: readonly Uint8Array[]): Promise<void> {
  const { store, fences, erased } = deps;
  const changes = all.flatMap((effects) => effects.changes);
  const deletions = all.flatMap(({ deleted }) => deleted ?? []);
  if (deletions.length > 0) await fences.recordTombstones(deletions);
  const gone = await erased.among([...new Set(changes.flatMap(({ user, actor }) => [user, actor]))]);
  const kept = changes.filter(({ user, actor }) => !gone.has(user) && !gone.has(actor));
  const named = kept.flatMap(({ active, drop, byDrop }) => (active && drop !== "" ? [drop, byDrop] : []));
  const drops = [...new Set(named)];
  const dead = new Set([...(await fences.tombstonedAmong(drops)), ...deletions.map(({ drop }) => drop)]);
  const alive = kept.map((change) => (tellsOf(dead, change) ? { ...change, active: false } : change));
  const made = await store.write(await judge(deps, alive));
  await failpoint("notification-written", ...bodies);
  const deleted = new Set([...dead, ...(await fences.tombstonedAmong(drops))]);
  await store.removeDrops([...deleted]);
  const told = made.filter(({ change }) => !tellsOf(deleted, change));
  await deps.tell(told);
  observeMade(told, sharedNow());
}

const tellsOf = (drops: ReadonlySet<string>, { drop, byDrop }: Change): boolean => drops.has(drop) || drops.has(byDrop);
