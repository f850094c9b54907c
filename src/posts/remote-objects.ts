import {
  type DeleteRemoteObjectRequest,
  type DeleteRemoteObjectResponse,
  type GetRemoteObjectRequest,
  type GetRemoteObjectResponse,
  RemoteKind,
} from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import type { PostsDeps } from "./deps.js";
import { dropDeleted } from "./events.js";
import type { StoredRemoteObject } from "./ports.js";
import { presentRemote, presentRemoteTombstone } from "./present.js";
import { MAX_URI_BYTES } from "./put-remote-object.js";
import { readUri, readViewer } from "./request.js";
import { visibleTo } from "./visible.js";

/** A foreign object, or its tombstone. */
export const getRemoteObject =
  (deps: PostsDeps) =>
  async (request: GetRemoteObjectRequest): Promise<GetRemoteObjectResponse> => {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const viewer = readViewer(request.viewer_id);
    const object = await deps.store.remote.get(uri);
    if (object === undefined || !(await isShown(deps, viewer, object)))
      throw new AppError("notfound", "uri: there is no such object");
    return object.deletedAt === null
      ? { object: presentRemote(object) }
      : { tombstone: presentRemoteTombstone(object) };
  };

/** Whether a viewer may see a foreign object: drops only are not for everybody. */
export async function isShown(
  deps: PostsDeps,
  viewer: string | undefined,
  object: StoredRemoteObject,
): Promise<boolean> {
  if (object.kind !== RemoteKind.DROP) return true;
  return (await visibleTo(deps, viewer, [{ ...object, userId: object.actorUri }])).length > 0;
}

/** Leaves a tombstone, also of an object that was never stored: its deletion may have come first. */
export const deleteRemoteObject =
  (deps: PostsDeps) =>
  async (request: DeleteRemoteObjectRequest): Promise<DeleteRemoteObjectResponse> => {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const object = await deps.store.remote.remove(uri, dropDeleted(uri));
    deps.wakeRelay();
    deps.observe.changed("remote-deleted");
    return { tombstone: presentRemoteTombstone(object) };
  };
