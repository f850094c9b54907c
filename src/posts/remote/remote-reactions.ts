import * as wire from "../../gen/avion/posts.js";
import { AppError, invalid } from "../../kernel/errors.js";
import { MAX_ID_BYTES } from "../../kernel/ids.js";
import { readTime } from "../../kernel/paging.js";
import { refuseWhileFull, requireKept } from "../drops/drops.js";
import { erasedConflict } from "../drops/erased.sql.js";
import { observePosts } from "../drops/observe.js";
import { askingOnce } from "../drops/relations.js";
import { isUri, readAnyDropId, readUri, readVisibility } from "../drops/request.js";
import { localDropOr, urisOf } from "../drops/uris.js";
import { isBetweenBlocked } from "../drops/visibility.js";
import { limitedReaction } from "../reactions/reactions.js";
import { findShareable } from "../reactions/reposts.js";
import { targetOf } from "../reactions/targets.js";
import type { RemoteDeps } from "./deps.js";
import { linkReactionNow } from "./reaction-links.js";
import type { RemoteReaction } from "./remote-reactions.sql.js";
import { MAX_URI_BYTES, requireOnHost } from "./remote-request.js";

const { LIKE, SHARE } = wire.RemoteReactionKind;

type NewReaction = Omit<RemoteReaction, "deleted_at">;

export const remoteReactions = (deps: RemoteDeps) => ({
  async putRemoteReaction(request: wire.PutRemoteReactionRequest): Promise<wire.PutRemoteReactionResponse> {
    const reaction = await findObject(deps, await readReaction(request, deps));
    const isDated = request.created_at !== 0;
    const { uri, actor_uri, object, kind } = reaction;
    if (kind === SHARE) refuseWhileFull(deps);
    const key = { drop_id: object, kind: kind === LIKE ? "like" : "share", actor_id: actor_uri } as const;
    const { created } = await limitedReaction(
      deps,
      key,
      async () => {
        const stored = await put(deps, reaction, isDated);
        return { ...stored, changed: stored.created };
      },
      async () => (await deps.store.remoteReactions.get(uri))?.deleted_at === null,
    );
    if (created) {
      await linkReactionNow(deps, reaction);
      observePosts.changed(kind === LIKE ? "remote-liked" : "remote-shared");
    }
    return { created, repost_id: kind === SHARE ? await repostOf(deps, reaction) : "" };
  },

  /** A reaction that was never stored gets a tombstone, too: its deletion may arrive first. */
  async deleteRemoteReaction(request: wire.DeleteRemoteReactionRequest): Promise<wire.DeleteRemoteReactionResponse> {
    const { uri, ...undone } = await readUndo(deps, request);
    const { remoteReactions } = deps.store;
    const removed = uri === "" ? undefined : await remoteReactions.remove(uri, undone.actor_uri);
    const group = removed ?? undone;
    if (group.object === "" || group.kind === 0) return { changed: false };
    const others = await remoteReactions.removeGroup(group);
    if (removed === undefined && others === 0) return { changed: false };
    await linkReactionNow(deps, { ...group, created_at: removed?.created_at ?? 0 });
    observePosts.changed(group.kind === LIKE ? "remote-unliked" : "remote-unshared");
    return { changed: true };
  },
});

/** @throws AppError `invalid` */
function refuseOwn({ config }: RemoteDeps, reaction: Pick<RemoteReaction, "uri" | "actor_uri">): void {
  const uris = urisOf(config);
  for (const field of ["uri", "actor_uri"] as const)
    if (uris?.isOwn(reaction[field]))
      throw invalid(field, "is of this server: LikeDrop, UnlikeDrop, ShareDrop and UnshareDrop are for its users");
}

type Undo = Pick<RemoteReaction, "uri" | "actor_uri" | "object" | "kind">;

/**
 * The actor, the object and the kind of a stored reaction are known. @throws AppError `conflict` if the URI is that of
 * another
 */
async function readUndo(deps: RemoteDeps, request: wire.DeleteRemoteReactionRequest): Promise<Undo> {
  const kind = request.kind === wire.RemoteReactionKind.UNSPECIFIED ? 0 : readKind(request.kind);
  const isNamed = request.object !== "" && kind !== 0;
  const uri = request.uri === "" && isNamed ? "" : readUri("uri", request.uri, MAX_URI_BYTES);
  const stored = uri === "" ? undefined : await deps.store.remoteReactions.get(uri);
  const isKnown = stored !== undefined && stored.kind !== 0;
  // A tombstone of a URI that was never stored would refuse the genuine reaction.
  const actor = request.actor_uri === "" && isKnown ? stored.actor_uri : request.actor_uri;
  const actor_uri = readUri("actor_uri", actor, MAX_ID_BYTES);
  refuseOwn(deps, { uri, actor_uri });
  if (uri !== "") requireOnHost("actor_uri", actor_uri, uri);
  const named = request.object === "" ? "" : readAnyDropId("object", localDropOr(request.object, deps.config));
  const target = named === "" ? undefined : await targetOf(deps, named);
  const undo = { uri, actor_uri, object: (kind === SHARE && target?.repost_of) || named, kind };
  if (!isKnown) return undo;
  for (const field of ["actor_uri", "object", "kind"] as const)
    if (undo[field] !== "" && undo[field] !== 0 && undo[field] !== stored[field]) throw otherConflict(field);
  // An undo that is repeated must not take back what was put since.
  if (stored.deleted_at !== null) return { uri, actor_uri, object: "", kind: 0 };
  return { uri, actor_uri, object: stored.object, kind: stored.kind };
}

const otherConflict = (field: string): AppError => new AppError("conflict", `${field}: the reaction has another one`);

function readKind(kind: wire.RemoteReactionKind): wire.RemoteReactionKind {
  if (kind !== LIKE && kind !== SHARE) throw invalid("kind", "must be like or share");
  return kind;
}

/** A share may be for fewer than its drop. */
function readShareVisibility({ kind, visibility }: wire.PutRemoteReactionRequest): number {
  if (visibility === wire.Visibility.UNSPECIFIED) return visibility;
  if (kind !== SHARE) throw invalid("visibility", "may be set for shares only");
  return readVisibility(visibility);
}

async function readReaction(request: wire.PutRemoteReactionRequest, deps: RemoteDeps): Promise<NewReaction> {
  const kind = readKind(request.kind);
  const reaction = {
    uri: readUri("uri", request.uri, MAX_URI_BYTES),
    actor_uri: readUri("actor_uri", request.actor_uri, MAX_ID_BYTES),
    object: readAnyDropId("object", localDropOr(request.object, deps.config)),
    kind,
    created_at: readTime("created_at", request.created_at),
    visibility: readShareVisibility(request),
  };
  refuseOwn(deps, reaction);
  requireOnHost("actor_uri", reaction.actor_uri, reaction.uri);
  const { created_at } = reaction;
  if (kind === SHARE && created_at !== 0) await requireKept(created_at, deps);
  // The clock of another server may be ahead.
  return { ...reaction, created_at: created_at === 0 ? deps.now() : Math.min(created_at, deps.now()) };
}

/** A share of a repost is one of its original. @throws AppError `notfound` or `conflict`, naming the object */
async function findObject(deps: RemoteDeps, reaction: NewReaction): Promise<NewReaction> {
  const { actor_uri: user, object: id, kind } = reaction;
  const target = await targetOf(deps, id);
  // A remote drop may come later.
  if (target === undefined && isUri(id)) return reaction;
  const asking = askingOnce(deps, "actor_uri");
  if (target === undefined || (await isBetweenBlocked(asking, { field: "actor_uri", user }, target)))
    throw new AppError("notfound", "object: there is no such drop");
  if (target.deleted_at !== null) throw new AppError("conflict", "object: the drop is deleted");
  if (kind === SHARE)
    return { ...reaction, object: (await findShareable(asking, { field: "object", id, sharer: user })).id };
  if (target.repost_of !== "") throw new AppError("conflict", "object: the drop is a repost");
  return reaction;
}

/** @throws AppError `conflict` if the actor is gone, or the URI is that of another reaction, or deleted */
async function put(
  { store }: RemoteDeps,
  reaction: NewReaction,
  isDated: boolean,
): Promise<{ readonly created: boolean }> {
  const stored = await store.remoteReactions.put(reaction, isDated);
  if (stored === undefined) {
    const { actor_uri } = reaction;
    if ((await store.erased.among([actor_uri])).size > 0) throw erasedConflict("actor_uri");
    throw new AppError("conflict", "actor_uri: the actor is deleted");
  }
  if (stored.deleted_at !== null) throw new AppError("conflict", "uri: the reaction is deleted");
  for (const field of ["actor_uri", "object", "kind"] as const)
    if (stored[field] !== reaction[field]) throw otherConflict(field);
  return stored;
}

async function repostOf(deps: RemoteDeps, { object, actor_uri }: NewReaction): Promise<string> {
  const target = await targetOf(deps, object);
  if (target === undefined || target.key === "") return "";
  return (await deps.store.reposts.shareOf(target.key, actor_uri))?.repostId ?? "";
}
