import type * as wire from "../gen/avion/posts.js";
import { RemoteKind } from "../gen/avion/posts.js";
import { createdAtOf } from "./drop-ids.js";
import type { StoredDrop } from "./drops.sql.js";
import type { ListedDrop } from "./reads.sql.js";
import type { StoredRemoteObject } from "./remote.sql.js";

export function presentDetails(drop: StoredDrop): wire.DropDetails {
  return {
    drop_id: drop.dropId,
    user_id: drop.userId,
    visibility: drop.visibility,
    recipients: [...drop.recipients],
    reply_to: drop.replyTo,
    summary: drop.summary,
    body: drop.body,
    revision: drop.revision,
    created_at: createdAtOf(drop.dropId),
    updated_at: drop.updatedAt,
  };
}

export function presentTombstone({ dropId, replyTo, deletedAt }: StoredDrop): wire.Tombstone {
  return { id: dropId, former_type: replyTo === "" ? "drop" : "reply", deleted_at: deletedAt ?? 0 };
}

export function presentEither(drop: StoredDrop): wire.GetDropResponse {
  return drop.deletedAt === null ? { drop: presentDetails(drop) } : { tombstone: presentTombstone(drop) };
}

export function presentListed(drop: ListedDrop & { readonly deleted?: boolean }): wire.Drop {
  return {
    drop_id: drop.dropId,
    user_id: drop.userId,
    visibility: drop.visibility,
    created_at: drop.createdAt,
    deleted: drop.deleted ?? false,
    recipients: [...drop.recipients],
  };
}

export function presentRemote(object: StoredRemoteObject): wire.RemoteObject {
  return {
    uri: object.uri,
    kind: object.kind,
    actor_uri: object.actorUri,
    created_at: object.createdAt,
    document: object.document,
    public_key: object.publicKey,
    webfinger: object.webfinger,
    fetched_at: object.fetchedAt,
    expires_at: object.expiresAt,
    expired: object.expired,
    visibility: object.visibility,
    recipients: [...object.recipients],
  };
}

const KIND_NAMES: Readonly<Partial<Record<RemoteKind, string>>> = {
  [RemoteKind.DROP]: "drop",
  [RemoteKind.ACTOR]: "actor",
  [RemoteKind.SERVER]: "server",
};

/** An object that was never stored has no former type. */
export function presentRemoteTombstone({ uri, kind, deletedAt }: StoredRemoteObject): wire.Tombstone {
  return { id: uri, former_type: KIND_NAMES[kind] ?? "", deleted_at: deletedAt ?? 0 };
}
