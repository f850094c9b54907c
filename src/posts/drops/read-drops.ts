import * as wire from "../../gen/avion/posts.js";
import { AppError } from "../../kernel/errors.js";
import type { DropsDeps } from "./deps.js";
import {
  bytesOfDrop,
  bytesOfReply,
  findDrop,
  presentDetails,
  presentEither,
  presentRemote,
  presentReply,
  type Reply,
  requireShown,
} from "./drops.js";
import type { StoredDrop } from "./drops.sql.js";
import { FIRST_ID } from "./ids.js";
import { chunkOf, fillPage, MESSAGE_BYTES, textPages } from "./pages.js";
import { askingOnce } from "./relations.js";
import type { StoredRemoteObject } from "./remote-drops.sql.js";
import { isUri, readAnyDropId, readDropId, readDropIds, readViewer, readWholeNumber } from "./request.js";
import { localDropOr } from "./uris.js";
import { judged, type ShownDrop, visibleTo } from "./visibility.js";

const ABOVE_EVERY_REVISION = 2 ** 31;
export const readDrops = (deps: DropsDeps) => ({
  async getDrop(request: wire.GetDropRequest): Promise<wire.GetDropResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const revision = readWholeNumber("revision", request.revision);
    const drop = await findDrop(deps, dropId, readViewer(request.viewer_id));
    if (revision === 0 || drop.deleted_at !== null || drop.revision === revision) return presentEither(drop);
    const [version] = await deps.store.drops.revisions(dropId, revision + 1, 1);
    if (version?.revision !== revision) throw new AppError("notfound", "revision: there is no such version");
    return presentEither(version);
  },

  async getDrops(request: wire.GetDropsRequest): Promise<wire.GetDropsResponse> {
    const ids = readDropIds("drop_ids", request.drop_ids, textPages(deps.config).max);
    const [local, uris] = [ids.filter((id) => !isUri(id)), ids.filter(isUri)];
    const viewer = readViewer(request.viewer_id);
    const [stored, remote] = await Promise.all([
      local.length === 0 ? [] : deps.store.drops.byIds(local),
      uris.length === 0 ? [] : deps.store.remote.dropsByUris(uris),
    ]);
    const drops = await visibleTo(deps, viewer, [...stored, ...remote.map(judged)]);
    const stateOf = request.with_state ? await readStates(deps, viewer, drops) : () => ({});
    const byId = new Map(
      drops.map((drop) => {
        const [id, shown] = "uri" in drop ? [drop.uri, presentRemote(drop)] : [drop.drop_id, presentEither(drop)];
        return [id, { ...shown, ...stateOf(drop) }];
      }),
    );
    const response = { results: ids.flatMap((id) => byId.get(id) ?? []) };
    if (response.results.some(mayBeLong) && wire.GetDropsResponse.encode(response).finish().length > MESSAGE_BYTES)
      throw new AppError("exhausted", "drop_ids: the drops exceed a message of 4 MiB: ask for fewer");
    return response;
  },

  async listRevisions(request: wire.ListRevisionsRequest): Promise<wire.ListRevisionsResponse> {
    const dropId = readDropId("drop_id", request.drop_id);
    const sizes = textPages(deps.config);
    const page = deps.tokens.open<[number]>(["revisions", dropId], request, sizes);
    const viewer = readViewer(request.viewer_id);
    if (viewer !== undefined) await findDrop(deps, dropId, viewer);
    const { items, next_page_token } = await fillPage<StoredDrop, [number]>(page, {
      keyOf: keyOfVersion,
      most: sizes.max,
      read: async ([below] = [ABOVE_EVERY_REVISION], limit) =>
        chunkOf(await deps.store.drops.revisions(dropId, below, limit), limit, keyOfVersion),
      keep: async (versions) => versions,
      bytesOf: bytesOfDrop,
    });
    if (items.length === 0) await findDrop(deps, dropId);
    return { revisions: items.map(presentDetails), next_page_token };
  },

  async listReplies(request: wire.ListRepliesRequest): Promise<wire.ListRepliesResponse> {
    const dropId = readAnyDropId("drop_id", localDropOr(request.drop_id, deps.config));
    const viewer = readViewer(request.viewer_id);
    const sizes = textPages(deps.config);
    const page = deps.tokens.open<[string]>(["replies", dropId, viewer ?? ""], request, sizes);
    const asking = askingOnce(deps);
    if (viewer !== undefined) await (isUri(dropId) ? requireShown : findDrop)(asking, dropId, viewer);
    const { items, next_page_token } = await fillPage<Reply, [string]>(page, {
      keyOf: keyOfReply,
      most: sizes.max,
      read: async (after, limit) => {
        const wanted = { replyTo: dropId, after: after?.[0] ?? FIRST_ID, viewer: viewer ?? "" };
        return chunkOf(await repliesOf(deps, wanted, limit), limit, keyOfReply);
      },
      keep: (replies) => visibleTo(asking, viewer, replies),
      bytesOf: bytesOfReply,
    });
    if (items.length === 0 && !isUri(dropId)) await findDrop(deps, dropId);
    const replies = items.flatMap((reply) => ("uri" in reply ? [] : presentDetails(reply)));
    return { replies, items: items.map(presentReply), next_page_token };
  },
});

type Shown = ShownDrop | StoredRemoteObject;
type State = Partial<Pick<wire.GetDropResponse, "counts" | "viewer">>;

/** A remote drop that an earlier version has stored may have no key, and no reactions. */
const stateKeyOf = (drop: Shown): string => ("uri" in drop ? "" : drop.original_key) || (drop.drop_id ?? "");

/** Resolves to a function that returns the state of each of these drops; a deleted one has none. */
async function readStates(
  { store }: DropsDeps,
  viewer: string | undefined,
  drops: readonly Shown[],
): Promise<(drop: Shown) => State> {
  const keys = [...new Set(drops.filter(({ deleted_at }) => deleted_at === null).map(stateKeyOf))].filter(
    (key) => key !== "",
  );
  const states = keys.length === 0 ? [] : await store.states.states(keys, viewer ?? "");
  const byKey = new Map(states.map((state) => [state.drop_id, state]));
  return (drop) => {
    if (drop.deleted_at !== null) return {};
    const { liked, repost_id, ...counts } = byKey.get(stateKeyOf(drop)) ?? NO_STATE;
    const id = "uri" in drop ? drop.uri : drop.repost_of || drop.drop_id;
    return { counts: { ...counts, drop_id: id }, ...(viewer !== undefined && { viewer: { liked, repost_id } }) };
  };
}

const NO_STATE = { likes: 0, shares: 0, replies: 0, liked: false, repost_id: "" };

/** Texts always fit a message; documents of others, and what drops have besides their texts, may be much longer. */
const mayBeLong = ({ drop, remote }: wire.GetDropResponse): boolean =>
  remote !== undefined || drop?.remote_original !== undefined || hasPayload(drop) || hasPayload(drop?.original);

const hasPayload = (drop: wire.DropDetails | undefined): boolean =>
  drop !== undefined && (drop.attachments.length > 0 || drop.extra !== undefined);

const keyOfVersion = ({ revision }: StoredDrop): [number] => [revision];

const keyOfReply = ({ drop_id }: Reply): [string] => [drop_id];

/** Both lists are in the order of their ids, which begin with the time of creation. */
async function repliesOf(
  { store }: DropsDeps,
  wanted: { readonly replyTo: string; readonly after: string; readonly viewer: string },
  limit: number,
): Promise<Reply[]> {
  const [local, remote] = await Promise.all([store.drops.replies(wanted, limit), store.remote.replies(wanted, limit)]);
  const all = [...local, ...remote.map(judged)];
  return all.sort((a, b) => (a.drop_id < b.drop_id ? -1 : 1)).slice(0, limit);
}
