import { RemoteKind, type RemoteName, type ResolveUriRequest, type ResolveUriResponse } from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import { findLocalUser, type LocalUser } from "../drops/local-users.js";
import { askingOnce } from "../drops/relations.js";
import { isUri, readUri, readViewer } from "../drops/request.js";
import { urisOf } from "../drops/uris.js";
import { isBetweenBlocked, judged, type ShownDrop, shownTo } from "../drops/visibility.js";
import type { RemoteDeps } from "../remote/deps.js";
import { MAX_URI_BYTES } from "../remote/remote-request.js";

export const resolveUris = (deps: RemoteDeps) => ({
  async resolveUri(request: ResolveUriRequest): Promise<ResolveUriResponse> {
    const uri = readUri("uri", request.uri, MAX_URI_BYTES);
    const viewer = readViewer(request.viewer_id);
    const asking = askingOnce(deps);
    const uris = urisOf(deps.config);
    if (!uris?.isOwn(uri)) return { remote: await findRemote(asking, uri, viewer) };
    const named = uris.parse(uri);
    if (named === undefined || named.collection !== "") throw namesNothing();
    if (named.kind === "drops") return { drop_id: (await findNamedDrop(asking, named.id, viewer)).drop_id };
    if (await isErased(deps, named.id)) throw namesNothing();
    return { user_id: (await findNamedUser(asking, named.id, viewer)).id };
  },
});

export const namesNothing = (): AppError => new AppError("notfound", "uri: names nothing here");

export const isErased = async ({ store }: RemoteDeps, user: string): Promise<boolean> =>
  (await store.erased.among([user])).size > 0;

/** Finds a drop, deleted or not, that has a URI here and may be shown. @throws AppError `notfound` */
export async function findNamedDrop(deps: RemoteDeps, id: string, viewer: string | undefined): Promise<ShownDrop> {
  const stored = await deps.store.drops.byIds([id]);
  // The repost of a remote actor has its URI on the actor's server.
  const [drop] = await shownTo(
    deps,
    viewer,
    stored.filter(({ user_id }) => !isUri(user_id)),
  );
  if (drop === undefined) throw namesNothing();
  return drop;
}

/** @throws AppError `notfound` also if the viewer and the user block each other */
export async function findNamedUser(deps: RemoteDeps, id: string, viewer: string | undefined): Promise<LocalUser> {
  await requireUnblocked(deps, id, viewer);
  const user = await findLocalUser(deps, "uri", id);
  if (user === undefined) throw namesNothing();
  return user;
}

async function requireUnblocked(deps: RemoteDeps, person: string, viewer: string | undefined): Promise<void> {
  if (viewer === undefined) return;
  if (await isBetweenBlocked(deps, { field: "viewer_id", user: viewer }, { user_id: person })) throw namesNothing();
}

async function findRemote(deps: RemoteDeps, uri: string, viewer: string | undefined): Promise<RemoteName> {
  const stored = await deps.store.remote.get(uri);
  const [object] = stored === undefined ? [] : await shownTo(deps, viewer, [judged(stored)]);
  if (object === undefined) throw namesNothing();
  if (object.kind === RemoteKind.ACTOR) await requireUnblocked(deps, uri, viewer);
  return { uri, kind: object.kind };
}
