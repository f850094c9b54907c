import { type RelationEvent, SUBJECT_OF } from "../contracts/events.js";
import { draftOf, type EventDraft } from "../contracts/outbox.js";
import { RelationKind } from "../gen/avion/users.js";
import { AppError, invalid } from "../kernel/errors.js";
import { encodeId } from "../kernel/ids.js";

export type StoredKind = RelationKind.BLOCK | RelationKind.MUTE;

/** Blocks and inactive relations have neither an end nor `reposts_only`. */
interface RelationState {
  readonly active: boolean;
  /** Time in ms since the epoch; 0 stands for never. */
  readonly expires_at: number;
  readonly reposts_only: boolean;
}

export interface WantedRelation extends RelationState {
  readonly user_id: string;
  readonly target_id: string;
  readonly kind: StoredKind;
}

export interface StoredRelation extends RelationState {
  readonly version: number;
  readonly created_at: number;
}

export interface RelationRow extends WantedRelation, StoredRelation {
  readonly changed_at: number;
}

/** A mute has no effect from its end on; the maintenance ends it a moment later. */
const isInForce = ({ active, expires_at }: RelationState, now: number): boolean =>
  active && (expires_at === 0 || expires_at > now);

interface Change {
  readonly row?: RelationRow;
  /** True: the user has one more block or mute. */
  readonly adds: boolean;
}

/** @throws AppError `invalid` for an end that has passed */
export function changeOf(before: StoredRelation | undefined, wanted: WantedRelation, now: number): Change {
  const { active, expires_at, reposts_only } = wanted;
  if (expires_at > 0 && expires_at <= now) throw invalid("expires_at", "must be 0 or in the future");
  const inForce = before !== undefined && isInForce(before, now) ? before : undefined;
  const isSame = active
    ? inForce?.expires_at === expires_at && inForce.reposts_only === reposts_only
    : inForce === undefined;
  if (isSame) return { adds: false };
  const version = nextVersion(before?.version, now);
  const created_at = inForce?.created_at ?? now;
  return { row: { ...wanted, version, created_at, changed_at: now }, adds: inForce === undefined };
}

/** Versions start from the time, so that they also rise after an inactive row was pruned. */
const nextVersion = (version: number | undefined, now: number): number => Math.max((version ?? 0) + 1, now);

export const endOf = (
  { user_id, target_id, version, created_at }: Pick<RelationRow, "user_id" | "target_id" | "version" | "created_at">,
  now: number,
): RelationRow => ({
  user_id,
  target_id,
  kind: RelationKind.MUTE,
  created_at,
  changed_at: now,
  version: nextVersion(version, now),
  active: false,
  expires_at: 0,
  reposts_only: false,
});

export const tooManyRelations = (most: number): AppError =>
  new AppError("exhausted", `target_id: a user can block and mute at most ${most} others`);

const NAMES = {
  [RelationKind.BLOCK]: { on: "user_blocked", off: "user_unblocked", key: "block" },
  [RelationKind.MUTE]: { on: "user_muted", off: "user_unmuted", key: "mute" },
} as const;

/** Events of a pair and kind are published in their order. No key of an edge has two colons. */
export function relationEvent(row: RelationRow, traceparent?: string): EventDraft {
  const { user_id, target_id, kind, active, version, expires_at, reposts_only } = row;
  const { on, off, key } = NAMES[kind];
  const event: RelationEvent = {
    name: active ? on : off,
    payload: { user_id, target_id, version, expires_at, reposts_only },
  };
  const owner = encodeId(user_id);
  return draftOf(event, { owner, key: `${key}:${owner}:${encodeId(target_id)}`, traceparent });
}

const SUBJECTS: ReadonlySet<string> = new Set(
  Object.values(NAMES).flatMap(({ on, off }) => [SUBJECT_OF[on], SUBJECT_OF[off]]),
);

export const isRelationSubject = (subject: string): boolean => SUBJECTS.has(subject);
