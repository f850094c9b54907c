import { type ActivityEvent, parseStoredActivity, type Requested } from "../contracts/activity.js";
import {
  type DropCreated,
  type EdgeEvent,
  parseStored,
  type RemoteDropReceived,
  type TimelineEvent,
} from "../contracts/events.js";
import { isListReader } from "../contracts/lists.js";
import { type NotificationChange, parseNotificationJob } from "../contracts/notification-jobs.js";
import { DLQ_HEADER, SILENT_HEADER, STREAM } from "../contracts/subjects.js";
import { isNews, LOG_AGE_MS } from "../contracts/times.js";
import { compareVersions } from "../contracts/versions.js";
import type { Delivery } from "../delivery/handler.js";
import { NotificationKind } from "../gen/avion/notifications.js";
import { sharedNow } from "../kernel/time.js";
import { type Deletion, isRemoteActor } from "../state/index.js";

export type Change = NotificationChange;

/** The effects of one event of DROPS or ACTIVITY, or of one job. */
export interface Effects {
  readonly changes: readonly Change[];
  readonly deleted?: Deletion;
}

/** A follow takes the place of the request. */
export const slotOf = (kind: NotificationKind): NotificationKind =>
  kind === NotificationKind.FOLLOW_REQUEST ? NotificationKind.FOLLOW : kind;

export const keyOf = ({ user, kind, actor, drop }: Pick<Change, "user" | "kind" | "actor" | "drop">): string =>
  JSON.stringify([drop, user, slotOf(kind), actor]);

const compare = (a: Change, b: Change): number => compareVersions(a.version, b.version) || a.rank - b.rank;

/** Keeps the newest change of each key; of equal ones the first. */
export function newestOf(changes: readonly Change[]): Change[] {
  const newest = new Map<string, Change>();
  for (const change of changes) {
    const known = newest.get(keyOf(change));
    if (known === undefined || compare(change, known) > 0) newest.set(keyOf(change), change);
  }
  return [...newest.values()];
}

/** @throws AppError `invalid`, naming the field */
export function effectsOf(delivery: Delivery): Effects {
  const { stream, subject, body, time } = delivery;
  if (stream === STREAM.fanout) return { changes: parseNotificationJob(body).changes.map(unlessOlderThanLog) };
  if (stream === STREAM.activity) return { changes: changesOf(parseStoredActivity(subject, body), delivery) };
  const event = parseStored(subject, body, time);
  if (event.name !== "drop_deleted") return { changes: changesOf(event, delivery) };
  const { drop_id: drop, user_id: author } = event.payload;
  return { changes: [], deleted: { drop, author, time } };
}

/** Tombstones and versions, which tell what was deleted or taken back since, live little longer than the log. */
const unlessOlderThanLog = (change: Change): Change =>
  sharedNow() - change.at > LOG_AGE_MS ? { ...change, active: false } : change;

type Key = Pick<Change, "user" | "kind" | "actor"> & Partial<Change>;

function changesOf(event: TimelineEvent | ActivityEvent, { time, seq, headers }: Delivery): Change[] {
  const isSilent = headers.get(SILENT_HEADER) !== undefined;
  // A dead letter that is sent back is as old as its first delivery.
  const since = Date.parse(headers.get(DLQ_HEADER.firstSeen) ?? "") || time;
  const { created_at = since } = event.payload as { readonly created_at?: number };
  const isOld = !isNews(Math.min(since, created_at), time);
  const usual = { drop: "", version: 0, rank: 0, active: true, at: time, seq, isSilent } as const;
  return keysOf(event)
    .map((key): Change => ({ ...usual, byDrop: key.drop ?? "", ...key }))
    .filter(isStored)
    .map((change) => (isOld ? { ...change, active: false } : change));
}

/** Nobody is notified by themselves, nor by a list, which is private. Other servers notify their people. */
const isStored = ({ user, actor, drop, byDrop }: Pick<Change, "user" | "actor" | "drop" | "byDrop">): boolean =>
  user !== actor &&
  !isListReader(actor) &&
  !isRemoteActor(user) &&
  [user, actor, `${drop}${byDrop}x`].every((id) => !id.includes("\0"));

function keysOf({ name, payload }: TimelineEvent | ActivityEvent): Key[] {
  switch (name) {
    case "drop_created":
    case "ap_drop_received":
      return keysOfDrop(payload);
    case "user_followed":
    case "user_unfollowed":
      return [{ ...edgeOf(payload), kind: NotificationKind.FOLLOW, rank: 1, active: name === "user_followed" }];
    case "user_requested":
      return [{ ...edgeOf(payload), kind: NotificationKind.FOLLOW_REQUEST, active: payload.active }];
    case "drop_reacted": {
      const { author_id: user, user_id: actor, drop_id: drop, active, version } = payload;
      return [{ user, kind: NotificationKind.LIKE, actor, drop, active, version }];
    }
    default:
      return [];
  }
}

const edgeOf = ({ follower_id, following_id, version }: Requested | EdgeEvent["payload"]) => ({
  user: following_id,
  actor: follower_id,
  version,
});

/**
 * Users are notified only of drops that they may see, and of no direct repost. A reply that mentions its addressee is a
 * reply.
 */
function keysOfDrop(drop: DropCreated | RemoteDropReceived): Key[] {
  const { drop_id, user_id: actor, visibility, recipients = [], created_at, reply_to_author, mentions = [] } = drop;
  const { repost_of, repost_author } = drop as Partial<DropCreated>;
  if (actor === undefined) return [];
  if (repost_of !== undefined) {
    if (repost_author === undefined || visibility === "direct") return [];
    const key = { user: repost_author, kind: NotificationKind.REPOST, actor, drop: repost_of, byDrop: drop_id };
    return [{ ...key, version: created_at, isForFollowers: visibility === "followers" }];
  }
  const sees = (user: string): boolean => visibility !== "direct" || recipients.includes(user);
  const replied = reply_to_author === undefined ? [] : [reply_to_author];
  const mentioned = [...new Set(mentions)].filter((user) => user !== reply_to_author);
  const told = (kind: NotificationKind, users: readonly string[], parent?: string): Key[] =>
    users.filter(sees).map((user) => ({ user, kind, actor, drop: drop_id, parent_author: parent }));
  return [...told(NotificationKind.REPLY, replied), ...told(NotificationKind.MENTION, mentioned, reply_to_author)];
}
