import { messageId, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import type { EventDraft } from "../contracts/outbox.js";
import { ENGAGEMENT_CHANGED } from "../contracts/subjects.js";
import { type KnownVisibility, VISIBILITY_NAMES } from "../contracts/timelines.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { Visibility } from "../gen/avion/posts.js";
import { encodeId } from "../kernel/ids.js";
import type { Addressing } from "./addressing.js";
import type { NewDrop } from "./drops.sql.js";
import { createdAtOf } from "./ids.js";
import type { NewRemoteObject } from "./remote.sql.js";

const addressing = ({ visibility, recipients }: Addressing) => ({
  visibility: VISIBILITY_NAMES[visibility as KnownVisibility],
  ...(visibility === Visibility.DIRECT ? { recipients: [...recipients] } : {}),
});

/** `repost` names the original and its author where the drop is a repost. */
export function dropCreated(
  { drop_id, user_id, ...drop }: NewDrop,
  repost?: { readonly repost_of: string; readonly repost_author: string },
): EventDraft {
  const payload = { drop_id, user_id, created_at: createdAtOf(drop_id), ...addressing(drop), ...repost };
  return dropEvent({ name: "drop_created", payload });
}

/** The deletion of a remote drop names no author. */
export function dropDeleted(dropId: string, userId?: string): EventDraft {
  const payload = { drop_id: dropId, ...(userId === undefined ? {} : { user_id: userId }) };
  return dropEvent({ name: "drop_deleted", payload });
}

export function remoteDropReceived({ uri, created_at, actor_uri, ...drop }: NewRemoteObject): EventDraft {
  const author = actor_uri === "" ? {} : { user_id: actor_uri };
  const payload = { drop_id: uri, created_at, ...author, ...addressing(drop) };
  return dropEvent({ name: "ap_drop_received", payload });
}

export const REACTION_KINDS = ["like", "share", "reply"] as const;

export interface ReactionKey {
  readonly drop_id: string;
  readonly kind: (typeof REACTION_KINDS)[number];
  /** The actor is a user, or the replying drop of a reply. */
  readonly actor_id: string;
}

/**
 * The event only names the reaction: its row has the state to count. The statement adds the row's version to the
 * message id.
 */
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

function dropEvent(
  event: Extract<TimelineEvent, { name: "drop_created" | "drop_deleted" | "ap_drop_received" }>,
): EventDraft {
  return {
    owner: event.payload.user_id ?? event.payload.drop_id,
    key: event.payload.drop_id,
    subject: SUBJECT_OF[event.name],
    messageId: messageId(event),
    body: JSON.stringify(event.payload),
    traceparent: traceHeaders()["traceparent"],
  };
}
