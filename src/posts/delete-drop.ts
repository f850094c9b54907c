import type { DeleteDropRequest, DeleteDropResponse } from "../gen/avion/posts.js";
import { invalid } from "../kernel/errors.js";
import { readId } from "../kernel/fields.js";
import { findDrop, type PostsDeps } from "./deps.js";
import type { StoredDrop } from "./drops.sql.js";
import { dropDeleted, engagementChanged } from "./events.js";
import { presentTombstone } from "./present.js";
import { isUri, readDropId } from "./request.js";

/** Answers the tombstone, also of a drop that was deleted before. */
export const deleteDrop =
  (deps: PostsDeps) =>
  async (request: DeleteDropRequest): Promise<DeleteDropResponse> => {
    const dropId = readDropId("drop_id", request.drop_id);
    const userId = readId("user_id", request.user_id);
    const drop = await findDrop(deps, dropId);
    if (drop.userId !== userId) throw invalid("user_id", "is not the author");
    if (drop.deletedAt !== null) return { tombstone: presentTombstone(drop) };
    const removed = await remove(deps, drop);
    return { tombstone: presentTombstone(removed ?? (await findDrop(deps, dropId))) };
  };

async function remove(deps: PostsDeps, { dropId, userId, replyTo }: StoredDrop): Promise<StoredDrop | undefined> {
  const toLocal = replyTo !== "" && !isUri(replyTo);
  const event = toLocal ? engagementChanged({ dropId: replyTo, kind: "reply", actorId: dropId }) : undefined;
  const removed = await deps.store.drops.remove({
    dropId,
    userId,
    deleted: dropDeleted(dropId, userId),
    withdrawn: event && { parentId: replyTo, event },
  });
  if (removed === undefined) return undefined;
  deps.wakeRelay();
  deps.observe.changed("deleted");
  return removed;
}
