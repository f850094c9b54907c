import type { GetDropRequest, GetDropResponse, GetDropsRequest, GetDropsResponse } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { MOST_DROPS } from "./limits.js";
import { presentDetails, presentEither } from "./present.js";
import { isUri, readDropId, readDropIds, readWhole } from "./request.js";

/** A drop, in its newest or an earlier version, or its tombstone. */
export const getDrop =
  (deps: PostsDeps) =>
  async (request: GetDropRequest): Promise<GetDropResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const revision = readWhole("revision", request.revision);
    const drop = await findDrop(deps, dropId);
    if (revision === 0 || drop.deletedAt !== null || drop.revision === revision) return presentEither(drop);
    const [version] = await deps.store.drops.revisions(dropId, revision + 1, 1);
    if (version?.revision !== revision) throw new AppError("notfound", "revision: there is no such version");
    return { drop: presentDetails(version) };
  };

/** Many drops or their tombstones, in the order asked for, without unknown ones. */
export const getDrops =
  ({ store }: PostsDeps) =>
  async (request: GetDropsRequest): Promise<GetDropsResponse> => {
    const ids = readDropIds("drop_ids", request.drop_ids, MOST_DROPS);
    const own = ids.filter((id) => !isUri(id));
    const drops = own.length === 0 ? [] : await store.drops.byIds(own);
    const byId = new Map(drops.map((drop) => [drop.dropId, presentEither(drop)]));
    return { results: ids.flatMap((id) => byId.get(id) ?? []) };
  };
