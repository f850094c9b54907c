import { ACTIVITY_SUBJECT_OF, reactionId } from "../../contracts/activity.js";
import { SUBJECT_OF, type TimelineEvent } from "../../contracts/events.js";
import { draftOf, type EventDraft } from "../../contracts/outbox.js";
import { ENGAGEMENT_CHANGED } from "../../contracts/subjects.js";
import { type KnownVisibility, VISIBILITY_NAMES } from "../../contracts/timelines.js";
import { Visibility } from "../../gen/avion/posts.js";
import { encodeId } from "../../kernel/ids.js";
import { traceHeaders } from "../../telemetry/spans.js";
import type { Addressing } from "./addressing.js";
import type { NewDrop } from "./drops.sql.js";
import { createdAtOf } from "./ids.js";

const addressing = ({ visibility, recipients }: Addressing) => ({
  visibility: VISIBILITY_NAMES[visibility as KnownVisibility],
  ...(visibility === Visibility.DIRECT ? { recipients: [...recipients] } : {}),
});

interface Answering {
  readonly reply_to: string;
  readonly reply_to_author: string;
}

interface Naming extends Answering {
  readonly mentions: readonly string[];
}

const naming = ({ reply_to, reply_to_author, mentions }: Naming): Partial<Answering> & { mentions?: string[] } => ({
  ...(reply_to !== "" && { reply_to }),
  ...(reply_to_author !== "" && { reply_to_author }),
  ...(mentions.length > 0 && { mentions: [...mentions] }),
});

export function dropCreated(
  { drop_id, user_id, reply_to, reply_to_author = "", mentions = [], ...drop }: NewDrop,
  repost?: { readonly repost_of: string; readonly repost_author: string },
): EventDraft {
  // A remote original may have no actor.
  const { repost_author, ...original } = repost ?? { repost_author: "" };
  const by = repost_author === "" ? {} : { repost_author };
  const payload = {
    drop_id,
    user_id,
    created_at: createdAtOf(drop_id),
    ...addressing(drop),
    ...original,
    ...by,
    ...naming({ reply_to, reply_to_author, mentions }),
  };
  return dropEvent({ name: "drop_created", payload });
}

/** The deletion of a remote drop names no author. */
export function dropDeleted(dropId: string, userId?: string): EventDraft {
  const payload = { drop_id: dropId, ...(userId === undefined ? {} : { user_id: userId }) };
  return dropEvent({ name: "drop_deleted", payload });
}

/** The statement adds the revision, with which the message id ends, and the time of the edit. */
export function dropEdited({ drop_id, user_id }: Pick<NewDrop, "drop_id" | "user_id">): EventDraft {
  return {
    owner: user_id,
    key: drop_id,
    subject: SUBJECT_OF.drop_edited,
    messageId: `drop_edited:${encodeId(drop_id)}`,
    body: JSON.stringify({ drop_id, user_id }),
    traceparent: traceHeaders()["traceparent"],
  };
}

interface ReceivedDrop extends Addressing, Naming {
  readonly uri: string;
  readonly created_at: number;
  readonly actor_uri: string;
}

export function remoteDropReceived({ uri, created_at, actor_uri, ...drop }: ReceivedDrop): EventDraft {
  const author = actor_uri === "" ? {} : { user_id: actor_uri };
  const payload = { drop_id: uri, created_at, ...author, ...addressing(drop), ...naming(drop) };
  return dropEvent({ name: "ap_drop_received", payload });
}

/** Any version will do: an erasure outranks every event. */
export function actorErased(actorUri: string): EventDraft {
  const token = encodeId(actorUri);
  const event = { name: "user_erased", payload: { user_id: actorUri, version: 0 } } as const;
  return draftOf(event, { owner: token, key: token, traceparent: traceHeaders()["traceparent"] });
}

export const REACTION_KINDS = ["like", "share", "reply"] as const;

export interface ReactionKey {
  readonly drop_id: string;
  readonly kind: (typeof REACTION_KINDS)[number];
  /** The actor is a user, or the replying drop of a reply. */
  readonly actor_id: string;
}

export type Like = ReactionKey & { readonly kind: "like" };

/** The row has the state to count. The statement adds the row's version to the message id. */
export function engagementChanged({ drop_id, kind, actor_id }: ReactionKey): EventDraft {
  const key = `${drop_id}:${kind}:${encodeId(actor_id)}`;
  return {
    owner: drop_id,
    key,
    subject: ENGAGEMENT_CHANGED,
    messageId: `engagement:${key}`,
    body: JSON.stringify({ drop_id, kind, actor_id }),
    traceparent: traceHeaders()["traceparent"],
  };
}

/**
 * `since`: the time of the like, ms since the epoch; undefined: it is taken back. The statement adds the drop's author and
 * the row's version, with which the message id ends.
 */
export function dropReacted(like: Like, since: number | undefined): EventDraft {
  const { drop_id, actor_id: user_id } = like;
  const { owner, key, traceparent } = engagementChanged(like);
  const payload = { drop_id, user_id, kind: "like" as const };
  return {
    owner,
    key,
    traceparent,
    subject: ACTIVITY_SUBJECT_OF.drop_reacted,
    messageId: reactionId(payload),
    body: JSON.stringify({ ...payload, active: since !== undefined, created_at: since }),
  };
}

function dropEvent(
  event: Extract<TimelineEvent, { name: "drop_created" | "drop_deleted" | "ap_drop_received" }>,
): EventDraft {
  const { user_id, drop_id } = event.payload;
  return draftOf(event, { owner: user_id ?? drop_id, key: drop_id, traceparent: traceHeaders()["traceparent"] });
}
