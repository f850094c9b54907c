import type { EventDraft } from "../contracts/outbox.js";
import { MAX_RECIPIENTS } from "../contracts/untrusted.js";
import * as wire from "../gen/avion/posts.js";
import { AppError, invalid } from "../kernel/errors.js";
import { MAX_ID_BYTES } from "../kernel/ids.js";
import { DAY, SECOND } from "../kernel/time.js";
import { type Addressing, followersOf, readAddressing } from "./addressing.js";
import { type PostsDeps, requireKept, visibleTo } from "./drops.js";
import { dropDeleted, remoteDropReceived } from "./events.js";
import { observePosts } from "./observe.js";
import type { NewRemoteObject, StoredRemoteObject } from "./remote.sql.js";
import {
  readRecipients,
  readStoredWebfingers,
  readUri,
  readViewer,
  readVisibility,
  readWebfinger,
  readWholeNumber,
} from "./request.js";

const { RemoteKind, Visibility } = wire;

const MAX_URI_BYTES = 2_048;
const MAX_DOCUMENT_BYTES = 256 * 1_024;
const MAX_KEY_BYTES = 16 * 1_024;
const PEM = /^-----BEGIN [A-Z ]+-----\r?\n/;

const DAY_S = DAY / SECOND;
const MAX_AGE_S = 365 * DAY_S;

export function remoteObjects(deps: PostsDeps) {
  const { store, wakeRelay } = deps;
  return {
    /** Stores a remote object each time it is fetched; a deleted one stays deleted. */
    async putRemoteObject(request: wire.PutRemoteObjectRequest): Promise<wire.PutRemoteObjectResponse> {
      const object = await readObject(request, deps);
      const maxAge = Math.min(readWholeNumber("max_age", request.max_age) || DAY_S, MAX_AGE_S);
      const stored = await store.remote.put(object, maxAge * SECOND, eventOf(object));
      if (stored === undefined) throw await conflictWith(object, deps);
      if (stored.created && object.kind === RemoteKind.DROP) wakeRelay("posts");
      observePosts.changed("remote-stored");
      return { object: stored, created: stored.created };
    },

    async getRemoteObject(request: wire.GetRemoteObjectRequest): Promise<wire.GetRemoteObjectResponse> {
      const uri = readUri("uri", request.uri, MAX_URI_BYTES);
      const viewer = readViewer(request.viewer_id);
      const object = await store.remote.get(uri);
      if (object === undefined || !(await isShown(deps, viewer, object)))
        throw new AppError("notfound", "uri: there is no such object");
      return object.deleted_at === null ? { object } : { tombstone: presentTombstone(object) };
    },

    /**
     * An object that was never stored gets a tombstone, too: its deletion may arrive first. The drops of an actor go with
     * it.
     */
    async deleteRemoteObject(request: wire.DeleteRemoteObjectRequest): Promise<wire.DeleteRemoteObjectResponse> {
      const uri = readUri("uri", request.uri, MAX_URI_BYTES);
      const object = await store.remote.remove(uri, dropDeleted(uri));
      if (object.kind !== RemoteKind.DROP) await removeDropsOf(uri, deps);
      wakeRelay("posts");
      observePosts.changed("remote-deleted");
      return { tombstone: presentTombstone(object) };
    },

    async resolveWebfinger(request: wire.ResolveWebfingerRequest): Promise<wire.ResolveWebfingerResponse> {
      const actor = await store.remote.byWebfinger(readStoredWebfingers(request.webfinger));
      if (actor === undefined) throw new AppError("notfound", "webfinger: there is no such actor");
      return { actor };
    },
  };
}

/** @throws AppError `notfound` for a remote drop that the viewer may not see; an unknown one may have replies */
export async function requireShown(deps: PostsDeps, uri: string, viewer: string): Promise<void> {
  const object = await deps.store.remote.get(uri);
  if (object !== undefined && !(await isShown(deps, viewer, object)))
    throw new AppError("notfound", "drop_id: there is no such drop");
}

/** Only drops may be hidden from a viewer. */
export const judged = <Object extends StoredRemoteObject>(object: Object): Object & { readonly user_id: string } =>
  object.kind === RemoteKind.DROP
    ? { ...object, user_id: object.actor_uri }
    : { ...object, user_id: "", visibility: Visibility.PUBLIC };

async function isShown(deps: PostsDeps, viewer: string | undefined, object: StoredRemoteObject): Promise<boolean> {
  return (await visibleTo(deps, viewer, [judged(object)])).length > 0;
}

export const presentRemote = (object: StoredRemoteObject): wire.GetDropResponse =>
  object.deleted_at === null ? { remote: object } : { tombstone: presentTombstone(object) };

const KIND_NAMES: Readonly<Partial<Record<wire.RemoteKind, string>>> = {
  [RemoteKind.DROP]: "drop",
  [RemoteKind.ACTOR]: "actor",
  [RemoteKind.SERVER]: "server",
};

/** An object that was never stored has no former type. */
const presentTombstone = ({ uri, kind, deleted_at }: StoredRemoteObject): wire.Tombstone => ({
  id: uri,
  former_type: KIND_NAMES[kind] ?? "",
  deleted_at: deleted_at ?? 0,
});

const eventOf = (object: NewRemoteObject): EventDraft | undefined =>
  object.kind === RemoteKind.DROP ? remoteDropReceived(object) : undefined;

const DROPS_AT_ONCE = 1_000;
/** The maintenance deletes what is left, also of a call that did not end. */
const MAX_STEPS = 10;

async function removeDropsOf(actorUri: string, { store }: PostsDeps): Promise<void> {
  const drops = { limit: DROPS_AT_ONCE, actorUri, eventOf: dropDeleted };
  for (let step = 0; step < MAX_STEPS; step++)
    if ((await store.remote.removeDropsOfDeleted(drops)) < DROPS_AT_ONCE) return;
}

async function conflictWith({ uri, kind, actor_uri }: NewRemoteObject, { store }: PostsDeps): Promise<AppError> {
  const conflict = (text: string): AppError => new AppError("conflict", text);
  const stored = await store.remote.get(uri);
  if (stored !== undefined && stored.deleted_at !== null) return conflict("uri: the object is deleted");
  const actor = actor_uri === "" ? undefined : await store.remote.get(actor_uri);
  if (actor !== undefined && actor.deleted_at !== null) return conflict("actor_uri: the actor is deleted");
  if (stored === undefined) return conflict("uri: the object is deleted");
  if (stored.kind !== kind) return conflict("kind: the object is stored with another kind");
  return conflict("actor_uri: the drop belongs to another actor");
}

type Field = "actor_uri" | "public_key" | "webfinger";
const OF_DROPS: readonly Field[] = ["actor_uri"];
const OF_ACTORS: readonly Field[] = ["public_key", "webfinger"];

async function readObject(request: wire.PutRemoteObjectRequest, deps: PostsDeps): Promise<NewRemoteObject> {
  const { kind } = request;
  if (kind < RemoteKind.DROP || kind > RemoteKind.SERVER) throw invalid("kind", "must be drop, actor or server");
  const isDrop = kind === RemoteKind.DROP;
  for (const field of isDrop ? OF_ACTORS : kind === RemoteKind.ACTOR ? OF_DROPS : [...OF_DROPS, ...OF_ACTORS])
    if (request[field] !== "") throw invalid(field, `is of ${OF_DROPS.includes(field) ? "a drop" : "an actor"}`);
  const object = {
    uri: readUri("uri", request.uri, kind === RemoteKind.SERVER ? MAX_URI_BYTES : MAX_ID_BYTES),
    kind,
    actor_uri: request.actor_uri === "" ? "" : readUri("actor_uri", request.actor_uri, MAX_ID_BYTES),
    created_at: isDrop ? await readCreatedAt(request.created_at, deps) : 0,
    document: readDocument(request.document),
    public_key: readKey(request.public_key),
    webfinger: request.webfinger === "" ? "" : readWebfinger(request.webfinger),
  };
  return { ...object, ...(isDrop ? await readAudience(request, object.actor_uri, deps) : refuseAudience(request)) };
}

/** The clock of another server may be ahead; 0: not known. */
async function readCreatedAt(createdAt: number, deps: PostsDeps): Promise<number> {
  readWholeNumber("created_at", createdAt);
  if (createdAt === 0) return deps.now();
  await requireKept(createdAt, deps);
  return Math.min(createdAt, deps.now());
}

function readDocument(document: string): string {
  if (Buffer.byteLength(document) > MAX_DOCUMENT_BYTES)
    throw invalid("document", `must have at most ${MAX_DOCUMENT_BYTES} bytes`);
  try {
    JSON.parse(document);
  } catch {
    throw invalid("document", "is not JSON");
  }
  return document;
}

function readKey(key: string): string {
  if (key === "") return key;
  if (!PEM.test(key) || key.includes("\0")) throw invalid("public_key", "is not PEM");
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) throw invalid("public_key", `must have at most ${MAX_KEY_BYTES} bytes`);
  return key;
}

async function readAudience(
  request: wire.PutRemoteObjectRequest,
  actorUri: string,
  deps: PostsDeps,
): Promise<Addressing> {
  const isUnset = request.visibility === Visibility.UNSPECIFIED;
  const visibility = isUnset ? undefined : readVisibility(request.visibility);
  const recipients = readRecipients(request.recipients, MAX_RECIPIENTS);
  const isComplete = visibility !== undefined && (visibility !== Visibility.DIRECT || recipients.length > 0);
  const addressed = isComplete ? undefined : await readDocumentAudience(request.document, actorUri, deps);
  const effective = visibility ?? (addressed?.visibility as wire.Visibility);
  if (recipients.length > 0 && effective !== Visibility.DIRECT)
    throw invalid("recipients", "may be set for direct drops only");
  if (effective !== Visibility.DIRECT) return { visibility: effective, recipients: [] };
  const named = addressed?.visibility === Visibility.DIRECT ? addressed.recipients : [];
  return { visibility: effective, recipients: recipients.length > 0 ? recipients : named };
}

async function readDocumentAudience(document: string, actorUri: string, { store }: PostsDeps): Promise<Addressing> {
  const actor = actorUri === "" ? undefined : await store.remote.get(actorUri);
  const isActor = actor?.kind === RemoteKind.ACTOR;
  return readAddressing(JSON.parse(document), followersOf(actorUri, isActor ? actor.document : undefined));
}

function refuseAudience({ visibility, recipients }: wire.PutRemoteObjectRequest): Addressing {
  if (visibility !== Visibility.UNSPECIFIED) throw invalid("visibility", "may be set for drops only");
  if (recipients.length > 0) throw invalid("recipients", "may be set for drops only");
  return { visibility, recipients: [] };
}
