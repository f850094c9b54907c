import type {
  DeleteRemoteObjectRequest,
  DeleteRemoteObjectResponse,
  GetRemoteObjectRequest,
  GetRemoteObjectResponse,
} from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import type { PostsDeps } from "./deps.js";
import { dropDeleted } from "./events.js";
import { presentRemote, presentRemoteTombstone } from "./present.js";
import { MAX_URI_BYTES } from "./put-remote-object.js";
import { readUri } from "./request.js";

/** A foreign object, or its tombstone. */
export const getRemoteObject =
  ({ store }: PostsDeps) =>
  async (request: GetRemoteObjectRequest): Promise<GetRemoteObjectResponse> => {
    const object = await store.remote.get(readUri("uri", request.uri, MAX_URI_BYTES));
    if (object === undefined) throw new AppError("notfound", "uri: there is no such object");
    return object.deletedAt === null
      ? { object: presentRemote(object) }
      : { tombstone: presentRemoteTombstone(object) };
  };

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
