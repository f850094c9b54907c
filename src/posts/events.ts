import { messageId, SUBJECT_OF, type TimelineEvent } from "../contracts/events.js";
import type { EventDraft } from "../contracts/outbox.js";
import { ENGAGEMENT_CHANGED } from "../contracts/subjects.js";
import { traceHeaders } from "../delivery/telemetry.js";
import { Visibility } from "../gen/avion/posts.js";
import { encodeId } from "../kernel/ids.js";
import type { Addressing } from "./addressing.js";
import { createdAtOf } from "./drop-ids.js";
import type { NewDrop } from "./drops.sql.js";
import type { NewRemoteObject } from "./remote.sql.js";

type KnownVisibility = Exclude<Visibility, Visibility.UNSPECIFIED | Visibility.UNRECOGNIZED>;

const NAMES = {
  [Visibility.PUBLIC]: "public",
  [Visibility.UNLISTED]: "unlisted",
  [Visibility.FOLLOWERS]: "followers",
  [Visibility.DIRECT]: "direct",
} as const satisfies Record<KnownVisibility, string>;

const addressing = ({ visibility, recipients }: Addressing) => ({
  visibility: NAMES[visibility as KnownVisibility],
  ...(visibility === Visibility.DIRECT ? { recipients: [...recipients] } : {}),
});

export function dropCreated({ dropId, userId, visibility, recipients }: NewDrop): EventDraft {
  const payload = {
    drop_id: dropId,
    user_id: userId,
    created_at: createdAtOf(dropId),
    ...addressing({ visibility, recipients }),
  };
  return dropEvent({ name: "drop_created", payload });
}

/** The deletion of a foreign drop names no author. */
export function dropDeleted(dropId: string, userId?: string): EventDraft {
  const payload = { drop_id: dropId, ...(userId === undefined ? {} : { user_id: userId }) };
  return dropEvent({ name: "drop_deleted", payload });
}

export function remoteDropReceived({ uri, createdAt, actorUri, ...seen }: NewRemoteObject): EventDraft {
  const author = actorUri === "" ? {} : { user_id: actorUri };
  const payload = { drop_id: uri, created_at: createdAt, ...author, ...addressing(seen) };
  return dropEvent({ name: "ap_drop_received", payload });
}

export const REACTION_KINDS = ["like", "share", "reply"] as const;

export interface ReactionKey {
  readonly dropId: string;
  readonly kind: (typeof REACTION_KINDS)[number];
  /** A user; of a reply the replying drop. */
  readonly actorId: string;
}

/** Only names the reaction: its row has the state to count. The statement adds the row's version to the message id. */
export function engagementChanged({ dropId, kind, actorId }: ReactionKey): EventDraft {
  const key = `${dropId}:${kind}:${encodeId(actorId)}`;
  return {
    owner: dropId,
    key,
    subject: ENGAGEMENT_CHANGED,
    messageId: `engagement:${key}`,
    body: JSON.stringify({ drop_id: dropId, kind, actor_id: actorId }),
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
