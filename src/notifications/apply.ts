import type { BatchHandler, Delivery, Handlers } from "../delivery/handler.js";
import { codeOf } from "../kernel/errors.js";
import { failpoint } from "../kernel/failpoints.js";
import { sharedNow } from "../kernel/time.js";
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
}

/** Makes the handlers of DROPS and ACTIVITY. Events may come late, twice and in any order. */
export function createHandlers(deps: ApplyDeps): Handlers {
  const batch: BatchHandler = async (deliveries) => {
    const understood = deliveries.flatMap((delivery) => {
      const effects = effectsUnlessInvalid(delivery);
      return effects === undefined ? [] : [{ delivery, effects }];
    });
    const bodies = understood.map(({ delivery }) => delivery.body);
    await apply(
      deps,
      understood.map(({ effects }) => effects),
      bodies,
    );
    const done = new Set(understood.map(({ delivery }) => delivery));
    return deliveries.filter((delivery) => !done.has(delivery));
  };
  return { batch, single: (delivery) => apply(deps, [effectsOf(delivery)], [delivery.body]) };
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
