import type { RelationEvent } from "../contracts/events.js";
import { grouped, mapLimited } from "../kernel/concurrency.js";
import type { FanoutDeps } from "./deps.js";
import type { HidingChange } from "./relations.redis.js";

export interface AdmittedRelation {
  readonly event: RelationEvent;
  readonly admittedAt: number;
}

export type ApplyRelations = (batch: readonly AdmittedRelation[]) => Promise<void>;

const CHANGES_AT_ONCE = 64;

/**
 * Makes the function that applies changed relations. An event only says that a relation has changed: the next read asks
 * the users service how it is. So events may come twice, late and in any order.
 */
export function createApplyRelations({ relations, listenersAmong, notifyHiding, applied }: FanoutDeps): ApplyRelations {
  return async (batch) => {
    if (batch.length === 0) return;
    const changes = batch.flatMap(({ event }) => changesOf(event));
    const isListening = await listenersAmong([changes.map(({ user }) => user)]);
    await mapLimited(changes, CHANGES_AT_ONCE, (change) =>
      relations.change(change, isListening?.(change.user) ?? false),
    );
    const listening = grouped(isListening ? changes.filter(({ user }) => isListening(user)) : [], ({ user }) => user);
    const inForce = await mapLimited([...listening.values()], CHANGES_AT_ONCE, relations.inForce);
    await notifyHiding(inForce.flat());
    for (const { event, admittedAt } of batch) applied(event.name, admittedAt);
  };
}

/** A block hides both users from each other. Nobody can hide from themselves. */
function changesOf({ name, payload }: RelationEvent): HidingChange[] {
  const { user_id: user, target_id: target, reposts_only } = payload;
  if (user === target) return [];
  if (name === "user_muted") return [{ user, target, hiding: reposts_only ? "reposts" : "all" }];
  if (name === "user_unmuted") return [{ user, target, hiding: undefined }];
  const hiding = name === "user_blocked" ? "all" : undefined;
  return [
    { user, target, hiding },
    { user: target, target: user, hiding },
  ];
}
