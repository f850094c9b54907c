import type { EventDraft } from "../../contracts/outbox.js";
import * as wire from "../../gen/avion/posts.js";
import { AppError, codeOf, invalid } from "../../kernel/errors.js";
import { MAX_ID_BYTES } from "../../kernel/ids.js";
import { DAY, SECOND } from "../../kernel/time.js";
import { presentRemoteTombstone } from "../drops/drops.js";
import { erasedConflict } from "../drops/erased.sql.js";
import { dropDeleted, remoteDropReceived } from "../drops/events.js";
import { observePosts } from "../drops/observe.js";
import type { StoredRemoteObject } from "../drops/remote-drops.sql.js";
import { readUri, readViewer, readWholeNumber } from "../drops/request.js";
import { urisOf } from "../drops/uris.js";
import { isVisible } from "../drops/visibility.js";
import { decideAddressed, decideWaiting } from "./audience.js";
import { eraseDeletedActors } from "./deleted-actors.js";
import type { RemoteDeps } from "./deps.js";
import { createFetch } from "./fetch.js";
import { linkNow } from "./links.js";
import { approvesFollowers } from "./received-documents.js";
import type { NewRemoteObject } from "./remote.sql.js";
import { MAX_URI_BYTES, readObject, requireOnHost } from "./remote-request.js";

const { RemoteKind } = wire;

const DAY_S = DAY / SECOND;
const MAX_AGE_S = 365 * DAY_S;

export function remoteObjects(deps: RemoteDeps) {
  const { store, wakeRelay, fetcher, log } = deps;
  const put = (request: wire.PutRemoteObjectRequest) => storeObject(deps, request);
  const fetch = fetcher && createFetch({ store, fetcher, put, log });
  return {
    /** Stores a remote object each time it is fetched; a deleted one stays deleted. */
    async putRemoteObject(request: wire.PutRemoteObjectRequest): Promise<wire.PutRemoteObjectResponse> {
      const stored = await put(request);
      return { object: stored, created: stored.created };
    },

    async getRemoteObject(request: wire.GetRemoteObjectRequest): Promise<wire.GetRemoteObjectResponse> {
      const uri = readUri("uri", request.uri, MAX_URI_BYTES);
      const viewer = readViewer(request.viewer_id);
      const stored = await store.remote.get(uri);
      // A fetch must not tell a viewer about an object that is hidden from them.
      const isHidden = stored !== undefined && !(await isVisible(deps, viewer, stored));
      const mayFetch = request.fetch && !isHidden && isFetched(stored) && !urisOf(deps.config)?.isOwn(uri);
      const object = fetch && mayFetch ? await fetch(uri).catch((error) => unlessStored(error, stored)) : stored;
      if (object === undefined || isHidden || (object !== stored && !(await isVisible(deps, viewer, object))))
        throw new AppError("notfound", "uri: there is no such object");
      return object.deleted_at === null ? { object } : { tombstone: presentRemoteTombstone(object) };
    },

    /** An object that was never stored gets a tombstone, too: its deletion may arrive first. */
    async deleteRemoteObject(request: wire.DeleteRemoteObjectRequest): Promise<wire.DeleteRemoteObjectResponse> {
      const uri = readUri("uri", request.uri, MAX_URI_BYTES);
      if (urisOf(deps.config)?.isOwn(uri))
        throw invalid("uri", "is of this server: DeleteDrop deletes a drop, EraseUser of UserService a user");
      const actor = request.actor_uri && readUri("actor_uri", request.actor_uri, MAX_ID_BYTES);
      requireOnHost("actor_uri", actor, uri);
      if (actor !== "") refuseOthers(await store.remote.get(uri), actor);
      const isActor = request.kind === RemoteKind.ACTOR;
      const object = await store.remote.remove(uri, dropDeleted(uri), isActor);
      if (object.kind === RemoteKind.DROP) await linkNow(deps, uri);
      else await removeActor(uri, deps);
      wakeRelay("posts");
      observePosts.changed("remote-deleted");
      return { tombstone: presentRemoteTombstone(object) };
    },
  };
}

/** @throws AppError `conflict` for an object of another actor */
function refuseOthers(stored: StoredRemoteObject | undefined, actor: string): void {
  const owner = stored?.kind === RemoteKind.ACTOR ? stored.uri : stored?.actor_uri || actor;
  if (owner !== actor) throw new AppError("conflict", "actor_uri: the object belongs to another actor");
}

async function storeObject(deps: RemoteDeps, request: wire.PutRemoteObjectRequest) {
  const { store, wakeRelay } = deps;
  const object = await readObject(request, deps);
  const maxAge = Math.min(readWholeNumber("max_age", request.max_age) || DAY_S, MAX_AGE_S);
  const isActor = object.kind === RemoteKind.ACTOR;
  const put = () => store.remote.put(object, maxAge * SECOND, eventOf(object));
  const stored = isActor ? await putApproving(deps, object, put) : await put();
  if (stored === undefined) throw await conflictWith(object, deps);
  // The actor of a drop may have come meanwhile.
  const decided = isActor
    ? await decideAddressed(deps, object.uri, stored.document)
    : object.awaits_actor
      ? await decideWaiting(deps, object.actor_uri)
      : 0;
  if (decided > 0 || (stored.created && object.kind === RemoteKind.DROP)) wakeRelay("posts");
  if (stored.created && object.kind === RemoteKind.DROP) await linkNow(deps, object.uri);
  observePosts.changed("remote-stored");
  return stored;
}

/**
 * Tells the UserService whether an actor approves followers, before the document is stored: if that fails, the call fails,
 * and is repeated. An older document, which is not stored, may have said otherwise.
 */
async function putApproving<Stored extends StoredRemoteObject>(
  { store, setApproval }: RemoteDeps,
  { uri, document }: NewRemoteObject,
  put: () => Promise<Stored | undefined>,
): Promise<Stored | undefined> {
  const [before, erased] = await Promise.all([store.remote.get(uri), store.erased.among([uri])]);
  const isGone = erased.size > 0 || (before !== undefined && before.deleted_at !== null);
  if (setApproval === undefined || isGone) return put();
  const approves = approvesFollowers(document);
  const tells = approves || (before !== undefined && approvesFollowers(before.document));
  if (tells) await setApproval(uri, approves);
  const stored = await put();
  if (tells && stored !== undefined && approvesFollowers(stored.document) !== approves)
    await setApproval(uri, !approves);
  return stored;
}

/** Documents of servers are not fetched: they have no id to compare with their URI. */
const isFetched = (stored: StoredRemoteObject | undefined): boolean =>
  stored === undefined || (stored.expired && stored.deleted_at === null && stored.kind !== RemoteKind.SERVER);

/** Returns the expired object, if there is one, instead of the error. */
function unlessStored(error: unknown, stored: StoredRemoteObject | undefined): StoredRemoteObject {
  if (stored === undefined || codeOf(error) === "failed") throw error;
  return stored;
}

const eventOf = (object: NewRemoteObject): EventDraft | undefined =>
  object.kind === RemoteKind.DROP && !object.awaits_actor ? remoteDropReceived(object) : undefined;

const DROPS_AT_ONCE = 1_000;
/** Maximum number of batches in a call. The maintenance deletes the others, and those of a call that broke off. */
const MAX_STEPS = 10;

async function removeActor(actorUri: string, deps: RemoteDeps): Promise<void> {
  const { store } = deps;
  // The maintenance asks the users service again, and logs why it fails.
  await eraseDeletedActors(deps, 1, actorUri).catch(() => undefined);
  const drops = { limit: DROPS_AT_ONCE, actorUri, eventOf: dropDeleted };
  for (let step = 0; step < MAX_STEPS; step++)
    if ((await store.remote.removeDropsOfDeleted(drops)) < DROPS_AT_ONCE) return;
}

async function conflictWith(object: NewRemoteObject, { store }: RemoteDeps): Promise<AppError> {
  const { uri, kind, actor_uri, recipients } = object;
  const conflict = (text: string): AppError => new AppError("conflict", text);
  const stored = await store.remote.get(uri);
  if (stored !== undefined && stored.deleted_at !== null) return conflict("uri: the object is deleted");
  const erased = stored === undefined ? await store.erased.among([...recipients, actor_uri, uri]) : new Set();
  if (erased.has(uri)) return erasedConflict("uri");
  if (erased.size > 0) return erasedConflict(erased.has(actor_uri) ? "actor_uri" : "recipients");
  const actor = actor_uri === "" ? undefined : await store.remote.get(actor_uri);
  if (actor !== undefined && actor.deleted_at !== null) return conflict("actor_uri: the actor is deleted");
  if (stored === undefined) return conflict("uri: the object is deleted");
  if (stored.kind !== kind) return conflict("kind: the object is stored with another kind");
  return conflict(`actor_uri: the drop belongs to ${actor_uri === "" ? "an" : "another"} actor`);
}
