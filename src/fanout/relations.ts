import type { RelationEvent } from "../contracts/events.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import type { MadeChange } from "../state/index.js";
import type { FanoutDeps } from "./deps.js";

export interface AdmittedRelation {
  readonly event: RelationEvent;
  readonly admittedAt: number;
}

export type ApplyRelations = (batch: readonly AdmittedRelation[]) => Promise<void>;

const CHANGES_AT_ONCE = 64;

/** Returns a function that applies changed relations. Events may come twice, late and in any order. */
export function createApplyRelations({ relations, listenersAmong, notifyHiding, applied }: FanoutDeps): ApplyRelations {
  return async (batch) => {
    if (batch.length === 0) return;
    const users = grouped(
      batch.flatMap(({ event }) => changesOf(event)),
      ({ user }) => user,
    );
    const isListening = (await listenersAmong([[...users.keys()]])) ?? (() => false);
    const changed = await mapLimited([...users], CHANGES_AT_ONCE, ([user, changes]) =>
      relations.change(changes, isListening(user)),
    );
    await notifyHiding(
      changed.flat().filter(({ user }) => isListening(user)),
      [...users.keys()],
    );
    for (const { event, admittedAt } of batch) applied(event.name, admittedAt);
  };
}

/** Returns the changes of a relation. A block hides both users from each other. Nobody can hide from themselves. */
function changesOf({ name, payload }: RelationEvent): MadeChange[] {
  const { user_id: user, target_id: target, reposts_only, expires_at } = payload;
  if (user === target) return [];
  if (name === "user_muted")
    return [{ user, target, hiding: reposts_only ? "reposts" : "all", until: expires_at || undefined, isOwn: true }];
  if (name === "user_unmuted") return [{ user, target, hiding: undefined, isOwn: true }];
  const hiding = name === "user_blocked" ? "all" : undefined;
  return [
    { user, target, hiding, isOwn: true },
    { user: target, target: user, hiding, isOwn: false },
  ];
}
