import type { GetCountsRequest, GetCountsResponse } from "../gen/avion/posts.js";
import { AppError } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { findDrop, type PostsDeps } from "./deps.js";
import { engagementChanged } from "./events.js";
import { isUri, MAX_COUNTS, readDropId, readDropIds } from "./request.js";

export const react =
  (deps: PostsDeps, kind: "like" | "share", active: boolean) =>
  async (request: { readonly drop_id: string; readonly user_id: string }): Promise<{ changed: boolean }> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const reaction = { dropId, kind, actorId: readId("user_id", request.user_id) };
    const { found, changed } = await deps.store.reactions.react(reaction, active, engagementChanged(reaction));
    if (!found) return refused(deps, dropId, active);
    if (changed) {
      deps.wakeRelay();
      deps.observe.changed(`${active ? "" : "un"}${kind}d`);
    }
    return { changed };
  };

/** A deleted drop has no reactions: there is nothing to take back, and none can be added. */
async function refused(deps: PostsDeps, dropId: string, active: boolean): Promise<{ changed: false }> {
  await findDrop(deps, dropId);
  if (active) throw new AppError("conflict", "drop_id: the drop is deleted");
  return { changed: false };
}

/** In the order asked for; zeros for deleted and unknown drops. */
export const getCounts =
  ({ store }: PostsDeps) =>
  async (request: GetCountsRequest): Promise<GetCountsResponse> => {
    const ids = readDropIds("drop_ids", request.drop_ids, MAX_COUNTS);
    const own = ids.filter((id) => !isUri(id));
    const counts = own.length === 0 ? [] : await store.reactions.counts(own);
    const byId = new Map(counts.map(({ dropId, likes, shares, replies }) => [dropId, { likes, shares, replies }]));
    return { counts: ids.map((drop_id) => ({ drop_id, ...(byId.get(drop_id) ?? NONE) })) };
  };

const NONE = { likes: 0, shares: 0, replies: 0 } as const;
