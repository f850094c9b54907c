import type * as wire from "../gen/avion/posts.js";
import { RemoteKind } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { type PostsDeps, visibleTo } from "./deps.js";
import { dropDeleted } from "./events.js";
import { presentRemote, presentRemoteTombstone } from "./present.js";
import type { StoredRemoteObject } from "./remote.sql.js";
import { MAX_URI_BYTES, readUri, readViewer, readWebfinger } from "./request.js";

export const getRemoteObject =
  (deps: PostsDeps) =>
  async (request: wire.GetRemoteObjectRequest): Promise<wire.GetRemoteObjectResponse> => {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const viewer = readViewer(request.viewer_id);
    const object = await deps.store.remote.get(uri);
    if (object === undefined || !(await isShown(deps, viewer, object)))
      throw new AppError("notfound", "uri: there is no such object");
    return object.deletedAt === null
      ? { object: presentRemote(object) }
      : { tombstone: presentRemoteTombstone(object) };
  };

/** Only drops may be hidden from a viewer. */
export async function isShown(
  deps: PostsDeps,
  viewer: string | undefined,
  object: StoredRemoteObject,
): Promise<boolean> {
  if (object.kind !== RemoteKind.DROP) return true;
  return (await visibleTo(deps, viewer, [{ ...object, userId: object.actorUri }])).length > 0;
}

/** An object that was never stored gets a tombstone, too: its deletion may arrive first. */
export const deleteRemoteObject =
  (deps: PostsDeps) =>
  async (request: wire.DeleteRemoteObjectRequest): Promise<wire.DeleteRemoteObjectResponse> => {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const object = await deps.store.remote.remove(uri, dropDeleted(uri));
    deps.wakeRelay();
    deps.observe.changed("remote-deleted");
    return { tombstone: presentRemoteTombstone(object) };
  };

export const resolveWebfinger =
  ({ store }: PostsDeps) =>
  async (request: wire.ResolveWebfingerRequest): Promise<wire.ResolveWebfingerResponse> => {
    const actor = await store.remote.byWebfinger(readWebfinger(request.webfinger));
    if (actor === undefined) throw new AppError("notfound", "webfinger: there is no such actor");
    return { actor: presentRemote(actor) };
  };
