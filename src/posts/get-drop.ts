import type { GetDropRequest, GetDropResponse, GetDropsRequest, GetDropsResponse } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { MOST_DROPS } from "./limits.js";
import { presentDetails, presentEither } from "./present.js";
import { isUri, readDropId, readDropIds, readViewer, readWhole } from "./request.js";
import { visibleTo } from "./visible.js";

/** A drop, in its newest or an earlier version, or its tombstone. */
export const getDrop =
  (deps: PostsDeps) =>
  async (request: GetDropRequest): Promise<GetDropResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const revision = readWhole("revision", request.revision);
    const drop = await findDrop(deps, dropId, readViewer(request.viewer_id));
    if (revision === 0 || drop.deletedAt !== null || drop.revision === revision) return presentEither(drop);
    const [version] = await deps.store.drops.revisions(dropId, revision + 1, 1);
    if (version?.revision !== revision) throw new AppError("notfound", "revision: there is no such version");
    return { drop: presentDetails(version) };
  };

/** Many drops or their tombstones, in the order asked for, without unknown ones. */
export const getDrops =
  (deps: PostsDeps) =>
  async (request: GetDropsRequest): Promise<GetDropsResponse> => {
    const ids = readDropIds("drop_ids", request.drop_ids, MOST_DROPS);
    const own = ids.filter((id) => !isUri(id));
    const viewer = readViewer(request.viewer_id);
    const stored = own.length === 0 ? [] : await deps.store.drops.byIds(own);
    const drops = await visibleTo(deps, viewer, stored);
    const byId = new Map(drops.map((drop) => [drop.dropId, presentEither(drop)]));
    return { results: ids.flatMap((id) => byId.get(id) ?? []) };
  };
