import type * as wire from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { readSize } from "../kernel/paging.js";
import { findDrop, type PostsDeps, visibleTo } from "./deps.js";
import { presentDetails, presentEither } from "./present.js";
import { isUri, MAX_DROPS, readDropId, readDropIds, readViewer, readWholeNumber, TEXT_PAGES } from "./request.js";

export const getDrop =
  (deps: PostsDeps) =>
  async (request: wire.GetDropRequest): Promise<wire.GetDropResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const revision = readWholeNumber("revision", request.revision);
    const drop = await findDrop(deps, dropId, readViewer(request.viewer_id));
    if (revision === 0 || drop.deletedAt !== null || drop.revision === revision) return presentEither(drop);
    const [version] = await deps.store.drops.revisions(dropId, revision + 1, 1);
    if (version?.revision !== revision) throw new AppError("notfound", "revision: there is no such version");
    return { drop: presentDetails(version) };
  };

/** In the order asked for, without unknown drops. */
export const getDrops =
  (deps: PostsDeps) =>
  async (request: wire.GetDropsRequest): Promise<wire.GetDropsResponse> => {
    const ids = readDropIds("drop_ids", request.drop_ids, MAX_DROPS);
    const own = ids.filter((id) => !isUri(id));
    const viewer = readViewer(request.viewer_id);
    const stored = own.length === 0 ? [] : await deps.store.drops.byIds(own);
    const drops = await visibleTo(deps, viewer, stored);
    const byId = new Map(drops.map((drop) => [drop.dropId, presentEither(drop)]));
    return { results: ids.flatMap((id) => byId.get(id) ?? []) };
  };

const ABOVE_EVERY_REVISION = 2 ** 31;

export const listRevisions =
  (deps: PostsDeps) =>
  async (request: wire.ListRevisionsRequest): Promise<wire.ListRevisionsResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const list = ["revisions", dropId] as const;
    const size = readSize("page_size", request.page_size, TEXT_PAGES);
    const [below] = deps.tokens.read<[number]>(list, request.page_token) ?? [ABOVE_EVERY_REVISION];
    const viewer = readViewer(request.viewer_id);
    if (viewer !== undefined) await findDrop(deps, dropId, viewer);
    const versions = await deps.store.drops.revisions(dropId, below, size + 1);
    if (versions.length === 0) await findDrop(deps, dropId);
    const { items, nextPageToken } = deps.tokens.page(list, versions, size, ({ revision }) => [revision]);
    return { revisions: items.map(presentDetails), next_page_token: nextPageToken };
  };
