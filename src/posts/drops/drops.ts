import {
  type DropDetails,
  type GetDropResponse,
  RemoteKind,
  type Tombstone,
  DropDetails as WireDetails,
  Reply as WireReply,
} from "../../gen/avion/posts.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { DAY, SECOND } from "../../kernel/time.js";
import type { DropsDeps } from "./deps.js";
import type { StoredDrop } from "./drops.sql.js";
import { createdAtOf } from "./ids.js";
import { FIELD_BYTES } from "./pages.js";
import type { StoredRemoteObject } from "./remote-drops.sql.js";
import { isVisible, type ShownDrop, visibleTo } from "./visibility.js";

/** @throws AppError `exhausted` while the number of unpublished events exceeds TIMELINE_OUTBOX_MAX_WAITING */
export function refuseWhileFull({ isFull }: DropsDeps): void {
  if (isFull()) throw new AppError("exhausted", "too many drops wait to be published", { retryAfterMs: SECOND });
}

/** @throws AppError `invalid` if drops of this time are no longer kept */
export async function requireKept(createdAt: number, { now, config, store }: DropsDeps): Promise<void> {
  const oldest = config.retentionDays === 0 ? 0 : now() - config.retentionDays * DAY;
  if (createdAt < oldest || createdAt < (await store.retention.start()))
    throw invalid("created_at", "is before the time down to which drops are kept");
}

/** Finds a drop, deleted or not, whoever may see it. @throws AppError `notfound` */
export async function storedDrop({ store }: DropsDeps, dropId: string): Promise<StoredDrop> {
  const [drop] = await store.drops.byIds([dropId]);
  if (drop === undefined) throw notFound();
  return drop;
}

/** Finds a drop, deleted or not, that the viewer (unset: anybody) may see. @throws AppError `notfound` */
export async function findDrop(deps: DropsDeps, dropId: string, viewer?: string): Promise<StoredDrop> {
  const drop = await storedDrop(deps, dropId);
  // A drop that the viewer may not see is answered like one that does not exist.
  if ((await visibleTo(deps, viewer, [drop])).length === 0) throw notFound();
  return drop;
}

/** @throws AppError `notfound` for a remote drop that the viewer may not see; an unknown one may have replies */
export async function requireShown(deps: DropsDeps, uri: string, viewer: string): Promise<void> {
  const object = await deps.store.remote.get(uri);
  if (object !== undefined && !(await isVisible(deps, viewer, object)))
    throw new AppError("notfound", "drop_id: there is no such drop");
}

const notFound = (): AppError => new AppError("notfound", "drop_id: there is no such drop");

export const presentDetails = (drop: ShownDrop): DropDetails => ({
  ...drop,
  created_at: createdAtOf(drop.drop_id),
  original: drop.original && presentDetails(drop.original),
  remote_original: drop.remote_original,
  extra: drop.extra ?? undefined,
});

export const presentTombstone = ({ drop_id, reply_to, deleted_at }: StoredDrop): Tombstone => ({
  id: drop_id,
  former_type: reply_to === "" ? "drop" : "reply",
  deleted_at: deleted_at ?? 0,
});

const NO_STATE = { counts: undefined, viewer: undefined };

export const presentEither = (drop: ShownDrop): GetDropResponse =>
  drop.deleted_at === null
    ? { ...NO_STATE, drop: presentDetails(drop) }
    : { ...NO_STATE, tombstone: presentTombstone(drop) };

export const KIND_NAMES: Readonly<Partial<Record<RemoteKind, string>>> = {
  [RemoteKind.DROP]: "drop",
  [RemoteKind.ACTOR]: "actor",
  [RemoteKind.SERVER]: "server",
};

export const presentRemote = (object: StoredRemoteObject): GetDropResponse =>
  object.deleted_at === null
    ? { ...NO_STATE, remote: object }
    : { ...NO_STATE, tombstone: presentRemoteTombstone(object) };

/** The tombstone of an object that was never stored has no former type. */
export const presentRemoteTombstone = ({ uri, kind, deleted_at }: StoredRemoteObject): Tombstone => ({
  id: uri,
  former_type: KIND_NAMES[kind] ?? "",
  deleted_at: deleted_at ?? 0,
});

export type Reply = StoredDrop | (StoredRemoteObject & { readonly drop_id: string; readonly user_id: string });

export const presentReply = (reply: Reply): WireReply =>
  "uri" in reply ? { remote: reply } : { drop: presentDetails(reply) };

export const bytesOfDrop = (drop: StoredDrop): number =>
  FIELD_BYTES + WireDetails.encode(presentDetails(drop)).finish().length;

/** Returns the size of a reply in a message. A page has two lists, and a drop of this server is in both. */
export function bytesOfReply(reply: Reply): number {
  const { length } = WireReply.encode(presentReply(reply)).finish();
  return FIELD_BYTES + ("uri" in reply ? length : 2 * length);
}
